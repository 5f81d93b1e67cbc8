"""The real client, in an environment of its own, does a day's work at a whole platform."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.patience import patient, until
from tests.prepared import locked
from tests.system.platform import Platform, free_port

pytestmark = [
    pytest.mark.ci,
    pytest.mark.system,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="this version of the client needs Python 3.11"),
]
# With a newer yarl every command of this version ends with an error.
PACKAGES = ("backend.ai-client==23.9.10", "yarl==1.9.4")
SMALL = ("-r", "cpu=0.5", "-r", "mem=256m")
SECONDS = 120.0


class Person:
    """Somebody who types ``backend.ai`` in an empty folder, with an empty home."""

    def __init__(self, programs: Path, folder: Path, platform: Platform, pair: dict[str, str]) -> None:
        self.work, home = folder / "work", folder / "home"
        self.work.mkdir()
        (home / ".ssh").mkdir(parents=True)
        self.program = programs / "backend.ai"
        kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        self.environ = kept | {
            "HOME": str(home), "BACKEND_ENDPOINT": f"{platform.url}/compat", "BACKEND_ENDPOINT_TYPE": "api",
            "BACKEND_ACCESS_KEY": pair["access_key"], "BACKEND_SECRET_KEY": pair["secret_key"],
        }  # fmt: skip

    def run(self, *words: str, given: str = "", code: int = 0, **environ: str) -> str:
        """Run a command, which must end with this code; returns all that it says."""
        done = subprocess.run(
            [self.program, *words], cwd=self.work, env=self.environ | environ, input=given, capture_output=True,
            text=True, timeout=patient(SECONDS), check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{said}"
        return said

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that stays."""
        pipe = subprocess.PIPE
        command = [self.program, *words]
        return subprocess.Popen(
            command, cwd=self.work, env=self.environ, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    def sessions(self) -> dict[str, dict[str, str]]:
        """Return the live sessions by name."""
        return {one["name"]: one for one in json.loads(self.run("--output", "json", "ps"))["items"]}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The programs of the client's environment, which later runs use again."""
    folder = Path(tempfile.gettempdir()) / "-".join(["client-of", *PACKAGES]).replace("=", "")
    with locked("client"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([folder / "bin/pip", "install", "--quiet", *PACKAGES], check=True, timeout=patient(600))
            (folder / "complete").touch()
    return folder / "bin"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("compat"), backend="process", extra={"BACKENDAI_COMPAT": "1"}) as platform:
        yield platform


@pytest.fixture(scope="module")
def pair(platform: Platform) -> dict[str, str]:
    return platform.client.post("keypairs/", {"name": "client"})


@pytest.fixture
def person(programs: Path, tmp_path: Path, platform: Platform, pair: dict[str, str]) -> Person:
    return Person(programs, tmp_path, platform, pair)


def test_sessions_from_the_first_handshake_to_their_end(person: Person) -> None:
    assert "Negotiated API version: (7, '20230615')" in person.run("config")
    assert person.sessions() == {}
    said = person.run("run", "--rm", *SMALL, "python", "-c", "print(6*7)")
    assert "42\n" in said and "(exit code = 0)" in said and "Cleaned up" in said
    said = person.run("session", "create", "--name", "first-1", *SMALL, "--preopen", "18123", "python")
    assert "is created and ready" in said and "sshd" in said and "18123" in said
    assert "already running" in person.run("session", "create", "--name", "first-1", *SMALL, "python")
    assert "Existing session ID" in person.run("session", "create", "--name", "first-1", "tiny", code=1)
    found = person.sessions()["first-1"]
    assert (found["status"], found["image"]) == ("RUNNING", "python")
    assert "main1" in person.run("session", "info", found["session_id"])
    said = person.run(
        "run", "-t", "first-1", "python", "-c", "import sys; print(input('p> ')); sys.exit(3)", given="hi\n"
    )
    assert "p> hi\n" in said and "p> p>" not in said and "(exit code = 3)" in said
    (person.work / "main.py").write_text("print('from a file')\n")
    assert "from a file" in person.run("run", "-t", "first-1", "python", "main.py")
    assert "running" in person.run("session", "status-history", "first-1")
    assert "End of logs" in person.run("session", "logs", "first-1")
    person.run("session", "rename", "first-1", "second-1")
    assert "No such session" in person.run("session", "rm", "first-1", code=1)
    assert "not restarted here" in person.run("session", "restart", "second-1", code=1)
    watching = person.start("session", "watch", "second-1")
    until(lambda: "second-1" in person.sessions(), SECONDS, "it is there")
    assert watching.stdout and "session_started" in watching.stdout.readline()
    assert "Done" in person.run("session", "rm", "second-1")
    assert "session_terminated" in watching.communicate(timeout=patient(SECONDS))[0]
    assert person.sessions() == {}
    assert "99 CPU" in person.run("session", "create", "-r", "cpu=99", "-r", "mem=1g", "python", code=1)
    queued = person.run("session", "create", "--name", "queued-1", *SMALL, "--enqueue-only", "python")
    assert "enqueued" in queued or "ready" in queued
    person.run("session", "rm", "queued-1")


def test_wrong_keys_and_missing_features_are_one_sentence(person: Person) -> None:
    said = person.run("session", "logs", "any", code=1, BACKEND_SECRET_KEY="x" * 40)
    assert "The signature does not match" in said and "Traceback" not in said
    said = person.run("dotfile", "list", code=1)
    assert "501" in said and "does not offer" in said and "Traceback" not in said


def test_files_apps_and_ssh_of_a_session(person: Person) -> None:
    (person.work / "d/e").mkdir(parents=True)
    (person.work / "d/e/b.txt").write_text("deep")
    person.run("session", "create", "--name", "desk-1", *SMALL, "--preopen", "18124", "python")
    person.run("session", "upload", "desk-1", "d/e/b.txt")
    assert "b.txt" in person.run("session", "ls", "desk-1", "d/e")
    (person.work / "out").mkdir()
    person.run("session", "download", "desk-1", "d/e/b.txt", "--dest", "out")
    assert (person.work / "out/b.txt").read_text() == "deep"
    assert "18124" in person.run("apps", "desk-1")
    serve = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-m', 'http.server', '18124'], stdout=-3, stderr=-3)"
    )
    person.run("run", "-t", "desk-1", "python", "-c", serve)
    port = free_port()
    proxy = person.start("app", "desk-1", "18124", "-b", f"127.0.0.1:{port}")
    try:
        until(lambda: answers(port), SECONDS, "the local proxy listens")
        until(lambda: "d/" in page(port), SECONDS, "the program of the session answers")
    finally:
        proxy.kill()
        proxy.communicate()
    assert "by-ssh" in person.run("ssh", "desk-1", "-p", str(free_port()), "--", "echo", "by-ssh")
    person.run("session", "rm", "desk-1")


def test_folders_and_their_files(person: Person) -> None:
    content = os.urandom(20_000_000)  # two parts of an upload
    (person.work / "big.bin").write_bytes(content)
    (person.work / "d").mkdir()
    (person.work / "d/a.txt").write_text("a")
    assert "local" in person.run("vfolder", "list-hosts")
    person.run("vfolder", "create", "data", "local")
    assert "data" in person.run("vfolder", "list") and "rw" not in person.run("vfolder", "info", "data")
    person.run("vfolder", "upload", "data", "big.bin")
    person.run("vfolder", "upload", "-r", "data", "d")
    person.run("vfolder", "mkdir", "data", "new")
    person.run("vfolder", "mv", "data", "d/a.txt", "new/a.txt")
    person.run("vfolder", "rename-file", "data", "new/a.txt", "b.txt")
    assert "b.txt" in person.run("vfolder", "ls", "data", "new")
    (person.work / "out").mkdir()
    person.run("vfolder", "download", "data", "big.bin", "--base-dir", "out")
    assert (person.work / "out/big.bin").read_bytes() == content
    said = person.run("run", "--rm", *SMALL, "-v", "data", "python", "-c", "print(open('new/b.txt').read() * 3)")
    assert "aaa\n" in said
    person.run("vfolder", "rm", "-r", "data", "new", given="y\n")
    person.run("vfolder", "rename", "data", "more")
    assert "new" not in person.run("vfolder", "ls", "more")
    assert "No invitations" in person.run("vfolder", "invitations")
    person.run("vfolder", "delete", "more")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("admin agent list", "local"), ("admin agent info local", "ALIVE"), ("admin image list", "python"),
        ("admin user list", "admin@example.com"), ("admin keypair list", "admin@example.com"),
        ("admin domain list", "default"), ("admin group list", "default"), ("admin scaling-group list", "default"),
        ("--output json service list", '"total_count": 0'), ("--output json admin session list", '"count"'),
    ],
)  # fmt: skip
def test_administrators_read_their_lists(person: Person, words: str, part: str) -> None:
    assert part in person.run(*words.split())


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def page(port: int) -> str:
    try:
        with requests.Session() as session:
            session.trust_env = False
            return session.get(f"http://127.0.0.1:{port}/", timeout=patient(30)).text
    except requests.RequestException:
        return ""
