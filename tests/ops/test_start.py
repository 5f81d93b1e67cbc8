"""Starting on one machine: folders, sockets, what each process is told, and the whole of it for real."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from backendai.agent.settings.credentials import Credentials, save_credentials
from backendai.ops.doctor.check import Check
from backendai.ops.run import data_folder, engine, fleet, up, valkey
from backendai.ops.run.fleet import Choice
from tests.patience import patient

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
DEEP = Path("/srv") / ("x" * 120)


def choice(data: Path, **changes: object) -> Choice:
    told: dict[str, object] = {"host": "127.0.0.1", "port": 18000, "data": data, "agents": 1, "backend": "docker"}
    return Choice(**{**told, **changes})  # type: ignore[arg-type]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listener(path: Path) -> socket.socket:
    """Return a server on this socket."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_it_finds_a_server_program_that_runs() -> None:
    version = subprocess.run([valkey.find_server(), "--version"], capture_output=True, text=True, check=True).stdout
    assert "server v=" in version


def test_it_says_what_to_do_when_no_server_program_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "_in_wheel", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(valkey.NoServer, match="apt install redis-server"):
        valkey.find_server()


def test_it_puts_the_socket_into_the_data_folder_when_its_path_is_short(tmp_path: Path) -> None:
    with valkey.own_socket(Path("/srv/data"), runtime=str(tmp_path)) as path:
        assert path == Path("/srv/data/valkey.sock")


def test_it_puts_the_socket_of_a_deep_folder_into_a_private_one_which_goes_with_the_run(short: Path) -> None:
    with valkey.own_socket(DEEP, runtime=str(short)) as path:
        assert path.parent.parent == short
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with valkey.own_socket(DEEP / "y", runtime=str(short)) as other:
            assert other != path
            assert path.parent.exists(), "another run does not take it for one that was killed"
        listener(path).close()
    assert list(short.iterdir()) == []
    with valkey.own_socket(DEEP, runtime=str(short)) as again:
        assert again == path


def test_it_deletes_the_sockets_of_runs_that_were_killed_and_no_others(short: Path) -> None:
    empty, dead, other = (short / f"backendai-{os.getuid()}-{name}" for name in ("0" * 12, "1" * 12, "of-a-person"))
    for folder in (empty, dead, other):
        folder.mkdir(mode=0o700)
    listener(dead / "valkey.sock").close()
    with (
        valkey.socket_folder(short, "2" * 12) as alive,
        listener(alive / "valkey.sock"),
        valkey.own_socket(Path("/srv/data"), runtime=str(short)),
    ):
        assert sorted(short.iterdir()) == [alive, other]


def test_it_does_not_trust_a_link_in_place_of_its_private_folder(short: Path) -> None:
    with valkey.own_socket(DEEP, runtime=str(short)) as path:
        private = path.parent
    private.symlink_to(short)
    with (
        pytest.raises(data_folder.StartRefused, match="not a private folder"),
        valkey.own_socket(DEEP, runtime=str(short)),
    ):
        pass


def test_it_shows_the_first_password_once(tmp_path: Path) -> None:
    (tmp_path / "first-admin.json").write_text('{"email": "a@example.com", "password": "secret-word"}')
    assert data_folder.take_first_admin(tmp_path) == data_folder.FirstAdmin("a@example.com", "secret-word")
    assert data_folder.take_first_admin(tmp_path) is None
    assert "secret-word" not in (tmp_path / "first-admin.json").read_text()


def test_it_notices_that_a_source_file_has_changed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = data_folder.fingerprint([tmp_path])
    assert data_folder.fingerprint([tmp_path]) == before
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("compiled")
    assert data_folder.fingerprint([tmp_path]) == before
    (tmp_path / "a.py").write_text("12")
    assert data_folder.fingerprint([tmp_path]) != before


def test_it_gives_the_join_token_only_to_agents_that_have_not_joined(tmp_path: Path) -> None:
    (tmp_path / "local-join-token").write_text("join_abc\n")
    joined = tmp_path / "agents" / "local-1"
    joined.mkdir(parents=True)
    save_credentials(joined, Credentials("http://portal", "local-1", "node_x", "d", "key"))
    first, second = fleet.agent_programs(choice(tmp_path, agents=2))
    assert "BACKENDAI_JOIN_TOKEN" not in first.environment
    assert second.environment["BACKENDAI_JOIN_TOKEN"] == "join_abc"
    assert (first.command[-1], second.name) == ("local-1", "agent-2")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:18000"),
        ("::", "http://[::1]:18000"),
        ("10.1.2.3", "http://10.1.2.3:18000"),
        ("fd00::1", "http://[fd00::1]:18000"),
    ],
)
def test_it_knows_under_which_address_the_portal_is_reached(tmp_path: Path, host: str, url: str) -> None:
    assert choice(tmp_path, host=host).portal_url == url


def test_it_says_that_native_processes_are_isolated_less(tmp_path: Path) -> None:
    assert "Isolation is weaker" in up.welcome(choice(tmp_path, backend="process"), None)
    assert "Isolation is weaker" not in up.welcome(choice(tmp_path), None)


DEBIAN, OTHER = "ID=ubuntu\nID_LIKE=debian\n", 'ID="alma"\nID_LIKE="rhel fedora"\n'
BOTH = "Docker (containers and images) and bubblewrap (a sandbox)"
FORBIDDEN = ("this user may not open unix:///var/run/docker.sock", "Add this user to the group docker.")


@pytest.mark.parametrize(
    ("no_engine", "programs", "works", "system", "line"),
    [
        (True, "", False, DEBIAN, f"{BOTH}: apt install docker.io bubblewrap"),
        (True, "", False, OTHER, f"{BOTH}: dnf install docker-ce bubblewrap"),
        (True, "bwrap", True, DEBIAN, "Docker (containers and images): apt install docker.io"),
        (True, "bwrap docker", True, DEBIAN, f"Docker: {FORBIDDEN[0]}. {FORBIDDEN[1]}"),
        (False, "", False, DEBIAN, "bubblewrap (a sandbox): apt install bubblewrap"),
        (False, "bwrap", False, DEBIAN, "bubblewrap has no namespaces. Allow them."),
        (False, "bwrap", True, DEBIAN, ""),
    ],
)
def test_it_says_in_one_line_what_a_better_machine_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_engine: bool, programs: str, works: bool, system: str, line: str
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(up.shutil, "which", lambda name: name if name in programs.split() else None)
    (tmp_path / "os-release").write_text(system)
    found = Check("bubblewrap", "ok" if works else "warning", "has no namespaces", "Allow them.")
    told = up.missing_programs(
        FORBIDDEN if no_engine else (), sandbox=lambda: found, os_release=tmp_path / "os-release"
    )
    assert told == line
    monkeypatch.setattr(up, "missing_programs", lambda no_engine: told)
    said = up.welcome(choice(tmp_path, backend="process"), None)
    assert ("Better with" in said) is bool(line) and line in said
    assert "Better with" not in up.welcome(choice(tmp_path), None), "containers need nothing better"


@pytest.mark.parametrize(("user", "is_said"), [(0, False), (1000, True)])
def test_it_says_what_an_agent_that_is_not_root_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, is_said: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert ("not root" in up.welcome(choice(tmp_path), None)) is is_said


def test_it_says_at_the_end_whether_sessions_go_on(tmp_path: Path) -> None:
    assert "Containers go on" in up._farewell(choice(tmp_path))
    assert "end with the platform" in up._farewell(choice(tmp_path, backend="process"))
    assert "Containers go on" in up._farewell(choice(tmp_path, backend="process", agents=0))


def test_it_tells_an_engine_that_may_not_be_asked_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for program, fix in (("docker", "Start Docker"), ("", "Install and start Docker")):
        monkeypatch.setattr(engine.shutil, "which", lambda name, program=program: name == program or None)
        with pytest.raises(engine.NoEngine) as absent:
            engine.ask_engine("/version", f"unix://{tmp_path}/absent.sock")
        assert absent.value.fix.startswith(fix)
    error = PermissionError()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(engine.NoEngine) as forbidden:
        patch.setattr(engine._UnixConnection, "connect", Mock(side_effect=error))
        engine.ask_engine("/version", "unix:///anything.sock")
    assert "usermod -aG docker" in forbidden.value.fix


def test_it_refuses_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert up.main(["--port", str(port), "--data", str(tmp_path), "--no-agent"]) == 1
    assert f"Port {port} on 127.0.0.1 cannot be used" in capsys.readouterr().err


def test_it_refuses_docker_where_no_engine_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    assert up.main(["--port", str(free_port()), "--data", str(tmp_path), "--backend", "docker"]) == 1
    assert "systemctl start docker" in capsys.readouterr().err


@pytest.mark.system
def test_it_starts_the_whole_platform_and_leaves_nothing_behind(tmp_path: Path, short: Path) -> None:
    port, data = free_port(), tmp_path / ("x" * 100)
    without = ("REDIS_URL", "DATABASE_URL", "BACKENDAI_DATA", "BACKENDAI_PORTAL_URL", "DJANGO_SETTINGS_MODULE")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    environment["XDG_RUNTIME_DIR"] = str(short)
    command = [sys.executable, "-m", "backendai.ops.run.up", "--port", str(port), "--data", str(data)]
    platform = subprocess.Popen(
        [*command, "--backend", "simulated"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert platform.stdout is not None
        shown = ""
        while "Stop  " not in shown:
            line = platform.stdout.readline()
            assert line, f"it ended before it was ready:\n{shown}"
            shown += line
        assert "Sign in as            admin@example.com" in shown
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=patient(10)) as answer:
            assert answer.status == 200
        assert {stat.S_IMODE(path.stat().st_mode) for path in data.glob("portal.sqlite3*")} == {0o600}
        children = psutil.Process(platform.pid).children(recursive=True)
        assert len(children) >= 5  # valkey, web, control, beat, agent
        platform.send_signal(signal.SIGTERM)
        rest, _ = platform.communicate(timeout=patient(PATIENCE))
        assert platform.returncode == 0, rest
        assert not psutil.wait_procs(children, timeout=patient(5))[1]
        assert list(short.iterdir()) == []
    finally:
        platform.kill()
        platform.communicate()
