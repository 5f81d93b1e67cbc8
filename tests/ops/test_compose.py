"""``docker-compose.yml`` is understood, and whatever goes on running has somebody who looks whether it hangs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backendai.wire.tickets import new_private_key, public_key_of
from tests.system.platform import free_port

ROOT = Path(__file__).parents[2]
COMPOSE = shutil.which("docker-compose")
PROFILES = ("--profile", "single", "--profile", "demo")
ALIVE = "backendai.ops.alive"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The services as docker-compose understands them, with the settings that its head asks for."""
    if COMPOSE is None:
        pytest.fail("docker-compose is missing: apt-get install --no-install-recommends docker-compose")
    folder = tmp_path_factory.mktemp("compose")
    for name in ("docker-compose.yml", ".env.example"):
        shutil.copy(ROOT / name, folder)
    settings = (folder / ".env.example").read_text()
    for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "BACKENDAI_ADMIN_PASSWORD"):
        assert f"#{name}=\n" in settings
        settings = settings.replace(f"#{name}=\n", f"{name}=secret\n")
    (folder / ".env").write_text(settings)
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run([COMPOSE, *PROFILES, "config"], cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout)["services"])


def test_it_knows_every_part(services: dict[str, Any]) -> None:
    wanted = {"postgres", "redis", "prepare", "web", "appproxy", "sshgate", "files", "control", "beat", "agent"}
    assert services.keys() == wanted | {"demo-agent-1", "demo-agent-2"}


def test_whatever_goes_on_running_has_a_health_check(services: dict[str, Any]) -> None:
    unwatched = [name for name, service in services.items() if "healthcheck" not in service]
    assert unwatched == ["prepare"]
    assert services["prepare"]["restart"] == "no"


def test_every_health_check_of_ours_is_one_that_the_command_knows(services: dict[str, Any]) -> None:
    checks = {name: service["healthcheck"]["test"] for name, service in services.items() if name != "prepare"}
    ours = {name: words for name, words in checks.items() if ALIVE in words}
    assert ours.keys() == checks.keys() - {"postgres", "redis"}
    for words in ours.values():
        assert words[:4] == ["CMD", "python", "-m", ALIVE]
        # With --help nothing is looked at; a part that there is not is refused all the same.
        known = subprocess.run(
            [sys.executable, "-m", ALIVE, words[4], "--help"], cwd=ROOT, capture_output=True, text=True
        )
        assert known.returncode == 0, known.stderr


def test_nothing_listens_for_other_machines_without_being_asked(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert len(published) == 4
    assert [port for port in published if not str(port).startswith("127.0.0.1:")] == []
    assert services["agent"]["environment"]["BACKENDAI_GATEWAY_HOST"] == "172.17.0.1"


def test_it_does_not_start_without_passwords(tmp_path: Path) -> None:
    assert COMPOSE is not None
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    (tmp_path / ".env").touch()
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run([COMPOSE, "config"], cwd=tmp_path, env=clean, capture_output=True, text=True)
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
