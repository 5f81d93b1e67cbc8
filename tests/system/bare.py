"""Machines that lack something: a clean clone, programs without some of them, and ``./bin/up`` as a person calls it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil
import pytest
import requests

from tests.patience import patient, until
from tests.system.client import Client
from tests.system.images import TINY
from tests.system.platform import free_port

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN, STOPPED_WITHIN = 150.0, 45.0
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_ENGINE = Path("/var/run/docker.sock")
_NOBODY = 65534
# A shell without job control ignores SIGINT for what it starts in the background, and so do the children of that.
_AS_IN_A_TERMINAL = ("env", "--default-signal=INT")
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_READY = re.compile(r"Sign in as +(\S+)\s+Password +(\S+).*Stop +Ctrl-C", re.DOTALL)


@dataclass(frozen=True)
class Person:
    """Who starts the platform: root, or a user without rights (None: the user of the tests)."""

    uid: int | None

    @property
    def command(self) -> list[str]:
        """The words that make a command this person's, who is in the group of the engine's socket."""
        if self.uid is None:
            return []
        groups = str(_ENGINE.stat().st_gid if _ENGINE.exists() else _NOBODY)
        return ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--groups", groups, "--"]

    def give(self, folder: Path) -> None:
        """Give the folder and all that is in it to this person."""
        if self.uid is not None:
            subprocess.run(["chown", "-R", f"{self.uid}:{self.uid}", str(folder)], check=True)


def ordinary_user() -> Person:
    """Return a user without rights: the tester, or nobody when that is root."""
    return Person(_NOBODY if os.geteuid() == 0 else None)


def clean_clone(target: Path) -> None:
    """Clone the present commit, compiled as an earlier start leaves it: that costs each start some seconds."""
    trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    command = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)]
    subprocess.run(command, check=True, env=os.environ | trust, capture_output=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", str(target / "backendai")], check=True)


def make_empty_tables(clone: Path, data: Path) -> None:
    """Make a database without any rows in this data folder."""
    told = {"PATH": os.defpath, "BACKENDAI_DATA": str(data)}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=clone, env=told, check=True)


def make_environment(target: Path, person: Person, clone: Path) -> None:
    """Make a virtual environment of an interpreter that this person can reach and of the packages that are installed.
    ``bin/install`` of the clone finds it complete."""
    (target / "bin").mkdir(parents=True)
    packages, place = (
        sysconfig.get_path("purelib"),
        target / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}",
    )
    place.mkdir(parents=True)
    if subprocess.run([*person.command, "ls", f"{packages}/django"], capture_output=True, check=False).returncode:
        shutil.copytree(packages, place / "site-packages", copy_function=_link_or_copy)
    else:
        (place / "site-packages").symlink_to(packages)
    interpreter = _interpreter_for(person)
    (target / "bin" / "python").symlink_to(interpreter)
    (target / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
    look = [*person.command, str(target / "bin" / "python"), "-c", "import django"]
    seen = subprocess.run(look, capture_output=True, text=True, check=False)
    assert seen.returncode == 0, f"{look} fails: {seen.stderr}"
    pins = (
        clone.joinpath("requirements.txt").read_bytes() * 2
    )  # as bin/install adds up the file and the one it is given
    stamp = subprocess.run(["cksum"], input=pins, capture_output=True, check=True).stdout
    (target / ".installed-requirements.txt").write_bytes(stamp)


def programs_without(target: Path, absent: Sequence[str]) -> None:
    """Make a folder with every program of the system but these."""
    target.mkdir()
    for folder in map(Path, _PROGRAMS):
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name not in absent and not (target / program.name).is_symlink():
                (target / program.name).symlink_to(program)


class Start:
    """One ``./bin/up`` of a clone, or what ``up`` says, in a folder. Use as a context manager: in the end Ctrl-C is
    pressed, and nothing may be left."""

    def __init__(
        self, clone: Path, person: Person, *, path: Path, has_docker: bool, up: Sequence[str] = ("./bin/up",)
    ) -> None:
        self.clone, self.person, self.has_docker = clone, person, has_docker
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._log = clone.parent / f"{clone.name}.log"
        self.environment = {"PATH": str(path), "HOME": str(clone.parent), "TERM": "xterm", "LANG": "C.UTF-8"}
        if not has_docker:
            self.environment["DOCKER_HOST"] = f"unix://{clone.parent}/no-engine.sock"
        self.image = "python"
        self._process = self.spawn(*up, "--port", str(port), log=self._log)

    def __enter__(self) -> Start:
        try:
            until(self._is_ready, READY_WITHIN, "the platform says that it is ready", last=self.said)
            self.client = self._sign_in()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                error.add_note(self.said()[-4000:])
            try:
                self.press_ctrl_c(self._process)
            except subprocess.TimeoutExpired as late:
                left = [" ".join(process.cmdline()) for process in self.processes()]
                late.add_note("\n".join([*left, self.said()[-4000:]]))
                raise
            left = [process.cmdline() for process in self.processes()]
            assert not left, f"processes were left behind: {left}"
        finally:
            self._kill()

    def spawn(self, *command: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        """Start a command of the clone as this person, in a terminal's process group of its own."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [*_AS_IN_A_TERMINAL, *self.person.command, *command],
                cwd=self.clone,
                env=self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def press_ctrl_c(self, process: subprocess.Popen[bytes]) -> None:
        """Send what the terminal sends to all processes of the group, and wait for the end."""
        os.killpg(process.pid, signal.SIGINT)
        process.wait(patient(STOPPED_WITHIN))

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``manage.py`` as this person."""
        told = self.environment | {"REDIS_URL": f"unix://{self.clone}/var/valkey.sock"}
        command = [*self.person.command, ".venv/bin/python", "manage.py", *arguments]
        return subprocess.run(command, cwd=self.clone, env=told, capture_output=True, text=True, timeout=patient(120))

    def said(self) -> str:
        """Return what the terminal shows."""
        return self._log.read_text(errors="replace")

    def welcome_line(self, name: str) -> str:
        """Return the line of the welcome with this name; empty when there is none."""
        lines = [line.strip() for line in self.said().splitlines()]
        return next((line for line in lines if line.startswith(name)), "")

    def answer_in_terminal(self, session_id: str) -> None:
        """Type a command into the session's terminal and read the answer."""
        with self.client.terminal(session_id) as terminal:
            terminal.run("echo answer-$((6*7))", "answer-42", seconds=30)

    def agent_pid(self) -> int | None:
        """Return the process id of this machine's agent; None while there is none."""
        for child in psutil.Process(self._process.pid).children():
            with suppress(psutil.Error):
                if " agent --name local" in " ".join(child.cmdline()):
                    return child.pid
        return None

    def processes(self) -> list[psutil.Process]:
        """Return the processes that belong to this start: by their folder, or by their data."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = [*process.cmdline(), f"{process.environ().get('BACKENDAI_DATA')}/"]
                is_ours = any(f"{self.clone}/" in word for word in words) and process.pid != os.getpid()
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def folders_outside(self) -> list[Path]:
        """Return the folders of kernels outside of the data folder of this machine's agent that are there."""
        with suppress(FileNotFoundError):
            record = json.loads((self.clone / "var/agents/local/kernels.json").read_text())
            return [Path(name) for name in record["folders"] if Path(name).exists()]
        return []

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, "bin/up has ended"
        return _READY.search(self.said()) is not None

    def _sign_in(self) -> Client:
        """Sign in and make a token."""
        with self.browser() as browser:
            if self.has_docker:
                self._take_in_images(browser)
            token = browser.post(
                f"{self.url}/api/v1/tokens/",
                json={"name": "matrix"},
                headers={"X-CSRFToken": _csrf(browser)},
                timeout=patient(15),
            )
        assert token.status_code == 201, token.text
        return Client(self.url, token.json()["token"])

    @contextmanager
    def browser(self) -> Iterator[requests.Session]:
        """Yield a browser that has signed in with the password that was printed."""
        found = _READY.search(self.said())
        assert found is not None
        with requests.Session() as browser:
            browser.trust_env = False
            browser.get(f"{self.url}/login/", timeout=patient(15)).raise_for_status()
            form = {"username": found[1], "password": found[2], "csrfmiddlewaretoken": _csrf(browser)}
            browser.post(f"{self.url}/login/", data=form, timeout=patient(15)).raise_for_status()
            yield browser

    def _take_in_images(self, browser: requests.Session) -> None:
        """Take what the agent has into the catalogue, and enable the tiny image, as an administrator does."""

        def found() -> list[dict[str, str]]:
            form = {"csrfmiddlewaretoken": _csrf(browser)}
            browser.post(f"{self.url}/manage/images/from-agents/", data=form, timeout=patient(15)).raise_for_status()
            images = browser.get(f"{self.url}/api/v1/images/?page_size=100", timeout=patient(15)).json()["results"]
            return [image for image in images if image["reference"] == TINY]

        (image,) = until(found, READY_WITHIN, "the agent has told of its images")
        address, headers = f"{self.url}/api/v1/images/{image['id']}/", {"X-CSRFToken": _csrf(browser)}
        browser.patch(address, json={"is_enabled": True}, headers=headers, timeout=patient(15)).raise_for_status()
        self.image = image["name"]

    def _kill(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        self._process.wait()
        for folder in self.folders_outside():
            shutil.rmtree(folder, ignore_errors=True)


def _csrf(browser: requests.Session) -> str:
    return next(cookie.value or "" for cookie in browser.cookies if "csrf" in cookie.name)


def _interpreter_for(person: Person) -> Path:
    """Return a Python of the tester's version that this person can start."""
    for candidate in (Path(sys.executable).resolve(), *(Path(folder, f"python{_VERSION}") for folder in _PROGRAMS)):
        with suppress(OSError):
            if not subprocess.run([*person.command, candidate, "-c", ""], capture_output=True, check=False).returncode:
                return candidate
    pytest.skip(f"no Python {_VERSION} that an ordinary user can start")


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)
