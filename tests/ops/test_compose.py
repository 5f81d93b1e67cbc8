"""``docker-compose.yml`` is understood, and whatever goes on running has somebody who looks whether it hangs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backendai.base.core.version import VERSION
from backendai.base.wire.tickets import new_private_key, public_key_of
from tests.system.platform import free_port

ROOT = Path(__file__).parents[2]
PROFILES = ("--profile", "single", "--profile", "demo", "--profile", "gates", "--profile", "monitoring")
PORTS = {"BACKENDAI_PORT": "7001", "BACKENDAI_APPS_PORT": "7002", "BACKENDAI_SSH_PORT": "7003"}
ALIVE = "backendai.ops.alive"


def compose() -> list[str]:
    """Return the command of this machine: ``docker compose``, or its first version, as Debian 12 has it."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    pytest.fail("docker compose is missing: apt-get install --no-install-recommends docker-compose")


def config(folder: Path, **changed: str) -> dict[str, Any]:
    """Return the services as docker compose understands them, with the settings that the head of the file requires."""
    for name in ("docker-compose.yml", ".env.example"):
        shutil.copy(ROOT / name, folder)
    settings = (folder / ".env.example").read_text()
    for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "BACKENDAI_ADMIN_PASSWORD"):
        assert f"#{name}=\n" in settings
        settings = settings.replace(f"#{name}=\n", f"{name}=secret\n")
    (folder / ".env").write_text(settings + "".join(f"{name}={value}\n" for name, value in changed.items()))
    done = subprocess.run(
        [*compose(), *PROFILES, "config"], cwd=folder, env=clean_environ(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "$${" not in done.stdout, "docker-compose 1.29 knows no default within a default"
    found = dict(yaml.safe_load(done.stdout)["services"])
    for service in found.values():  # docker compose 2 writes mappings, 1.29 texts
        service["ports"] = [
            f"{port['host_ip']}:{port['published']}:{port['target']}/tcp" if isinstance(port, dict) else str(port)
            for port in service.get("ports", [])
        ]
    return found


def clean_environ() -> dict[str, str]:
    """Return an environment without settings."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_CONFIG") if name in os.environ}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The services with default settings."""
    return config(tmp_path_factory.mktemp("compose"))


def test_it_knows_every_part(services: dict[str, Any]) -> None:
    wanted = {"postgres", "redis", "prepare", "web", "appproxy", "sshgate", "files", "control", "beat", "agent"}
    assert services.keys() == wanted | {"demo-agent-1", "demo-agent-2", "sshgates", "sshproxy", "prometheus", "grafana"}


def test_whatever_goes_on_running_has_a_health_check(services: dict[str, Any]) -> None:
    unwatched = [name for name, service in services.items() if "healthcheck" not in service]
    assert unwatched == ["prepare"]
    assert services["prepare"]["restart"] == "no"


def test_every_health_check_of_ours_is_one_that_the_command_knows(services: dict[str, Any]) -> None:
    checks = {name: service["healthcheck"]["test"] for name, service in services.items() if name != "prepare"}
    ours = {name: words for name, words in checks.items() if ALIVE in words}
    assert ours.keys() == checks.keys() - {"postgres", "redis", "sshproxy", "prometheus", "grafana"}
    for words in ours.values():
        assert words[:4] == ["CMD", "python", "-m", ALIVE]
        # With --help nothing is looked at; a part that there is not is refused all the same.
        known = subprocess.run(
            [sys.executable, "-m", ALIVE, words[4], "--help"], cwd=ROOT, capture_output=True, text=True
        )
        assert known.returncode == 0, known.stderr


def test_nothing_listens_for_other_machines_without_being_asked(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service["ports"]]
    assert len(published) == 7
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert services["agent"]["environment"]["BACKENDAI_GATEWAY_HOST"] == "172.17.0.1"


def test_other_ports_are_the_same_inside_and_outside(tmp_path: Path) -> None:
    services = config(tmp_path, **PORTS)
    published = {"web": "7001", "appproxy": "7002", "sshgate": "7003", "sshproxy": "7003"}
    for name, port in published.items():
        assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}/tcp"]
        assert any(port in word for word in services[name]["healthcheck"]["test"])
    for name in ("web", "appproxy", "sshgate", "sshgates", "control"):  # each names the ports to people or asks them
        environment = services[name]["environment"]
        assert {key: str(environment[key]) for key in PORTS} == PORTS
        assert environment["BACKENDAI_DOOR_URL"] == "http://web:7001"
    assert "--port=7001" in services["web"]["command"]
    assert services["demo-agent-1"]["environment"]["BACKENDAI_PORTAL_URL"] == "http://web:7001"


def test_gates_behind_the_proxy_are_reached_by_it_alone(services: dict[str, Any], tmp_path: Path) -> None:
    assert not services["sshgates"]["ports"]
    assert services["sshgates"]["environment"]["BACKENDAI_SSH_PROXIES"] == "sshproxy"
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        pytest.skip("haproxy is not installed")
    proxies = tmp_path / "proxies"
    environ = {"SSH_PORT": "2200", "SSH_PROXIES_FILE": str(proxies)}
    for told in ("\n", "10.0.0.5\n10.1.0.0/24\n"):
        proxies.write_text(told)
        command = [haproxy, "-c", "-f", ROOT / "ssh-gates.cfg"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_web_server_knows_where_the_other_parts_are(services: dict[str, Any]) -> None:
    environment = services["web"]["environment"]
    assert (environment["BACKENDAI_APPS_HOST"], environment["BACKENDAI_SSH_HOST"]) == ("appproxy", "sshgate")
    assert services["sshproxy"]["networks"]["default"]["aliases"] == ["sshgate"]


def test_agents_get_their_settings_and_no_secret_of_the_portal(tmp_path: Path) -> None:
    section = (
        (ROOT / ".env.example").read_text().partition("# -- agents ---")[2].partition("# -- docker compose only")[0]
    )
    told = set(re.findall(r"^#(BACKENDAI_\w+)=", section, re.MULTILINE))
    other_backends = {name for name in told if re.match(r"BACKENDAI_(KUBERNETES|QEMU)_", name)} | {
        "BACKENDAI_AGENT_ENVIRONMENTS",
        "BACKENDAI_AGENT_NATIVE_SERVING",
    }
    chosen = {"BACKENDAI_AGENT_BACKEND", "BACKENDAI_GATEWAY_URL", "BACKENDAI_JOIN_TOKEN"}  # by docker-compose.yml
    of_the_portal = {
        "BACKENDAI_SCRATCH_BYTES",
        "BACKENDAI_DISK_RESERVE",
        "BACKENDAI_COMMIT_BYTES",
        "BACKENDAI_COMMIT_TIMEOUT",
        "BACKENDAI_HOME_STORE_TIMEOUT",
        "BACKENDAI_STOP_GRACE",
        "BACKENDAI_SERVING_TRUST",
        "BACKENDAI_PROMETHEUS_URL",
        "BACKENDAI_SERVING_PUBLIC",
        "BACKENDAI_CLUSTER_POOL",
    }
    settings = told - other_backends - chosen - of_the_portal | {
        "BACKENDAI_FILES_LINKED_PATHS",
        "BACKENDAI_LOG_LEVEL",
        "BACKENDAI_SYNC_INTERVAL",
    }
    services = config(tmp_path, **dict.fromkeys(settings, "/told"), BACKENDAI_SECRET_KEY="a-secret")
    environment = services["agent"]["environment"]
    assert {name for name in settings if "/told" not in (environment.get(name) or "")} == set()
    for name in ("agent", "demo-agent-1", "demo-agent-2"):
        assert "secret" not in str(services[name])
    assert services["demo-agent-1"]["environment"]["BACKENDAI_AGENT_SLOTS"] == "/told"


def test_a_busy_machine_kills_no_worker_that_still_starts(services: dict[str, Any]) -> None:
    (told,) = (word for word in services["web"]["command"] if word.startswith("--timeout-worker-healthcheck="))
    assert int(told.partition("=")[2]) >= 60


def test_every_place_names_the_image_of_this_version(services: dict[str, Any]) -> None:
    ours = {name for name, service in services.items() if "backendai-portal" in service["image"]}
    assert ours == services.keys() - {"postgres", "redis", "sshproxy", "prometheus", "grafana"}
    files = ("docker-compose.yml", ".env.example", "kubernetes-agent.yaml", "docs/images.md", "docs/operations.md")
    found = {name: set(re.findall(r"backendai-portal:([\w.]+)", (ROOT / name).read_text())) for name in files}
    found["Dockerfile"] = set(re.findall(r'image\.version="(.*)"', (ROOT / "Dockerfile").read_text()))
    wanted = {VERSION, "VERSION"}
    assert {name: versions for name, versions in found.items() if not versions <= wanted} == {}, f"write {VERSION}"
    assert VERSION in found["docker-compose.yml"] & found["Dockerfile"]


def test_the_image_is_built_where_there_is_none(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if "build" in service] == ["prepare"]  # the first that starts
    image = services["prepare"]["image"]
    waiting = [name for name, service in services.items() if service["image"] == image and name != "prepare"]
    starts = dict.fromkeys(waiting, "prepare") | {"agent": "web", "demo-agent-1": "web", "demo-agent-2": "web"}
    assert {name: starts[name] for name in waiting if starts[name] not in services[name]["depends_on"]} == {}


def test_the_image_has_the_tools_of_an_agent() -> None:
    image = (ROOT / "Dockerfile").read_text().rpartition("FROM ")[2]
    installed = image.partition("apt-get install")[2].partition("&&")[0].split()
    assert {
        "e2fsprogs",
        "iptables",
        "openssh-client",
        "openssh-sftp-server",
        "postgresql-client",
        "rsync",
        "tmux",
    } <= set(installed)


def test_it_does_not_start_without_passwords(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    (tmp_path / ".env").touch()
    command = [*compose(), "config"]
    done = subprocess.run(command, cwd=tmp_path, env=clean_environ(), capture_output=True, text=True)
    assert done.returncode != 0
    assert "set it in .env" in done.stderr


def test_the_file_server_starts_as_it_is_written(services: dict[str, Any], tmp_path: Path) -> None:
    service, port = services["files"], free_port()
    folders = service["environment"]["BACKENDAI_STORAGE_HOSTS"].partition("=")[2]
    for name in ("data", "state", "folders"):
        (tmp_path / name).mkdir()
    told = {"public_key": public_key_of(new_private_key()), "deployment": "d-compose"}
    (tmp_path / "data/file-server.json").write_text(json.dumps(told))

    def here(text: str) -> str:
        for there, name in ((folders, "folders"), ("/data/", "data/"), ("/state/", "state/")):
            text = text.replace(there, f"{tmp_path}/{name}")
        return text.replace("8093", str(port)).replace("$$", "$")

    environ = {name: here(value or "") for name, value in service["environment"].items()}
    environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [here(word) for word in service["command"]]
    probe = [here(word) for word in service["healthcheck"]["test"][1:]]
    for _ in range(2):  # the second start finds the path prepared
        with subprocess.Popen(command, cwd=ROOT, env=environ) as process:
            while subprocess.run(probe, cwd=ROOT, env=environ, capture_output=True).returncode:
                assert process.poll() is None
            process.terminate()
        marker = json.loads((tmp_path / "folders/.backendai-storage.json").read_text())
        assert (marker["deployment"], marker["host"]) == ("d-compose", "local")
