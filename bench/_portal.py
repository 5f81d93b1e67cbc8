"""A platform of the benchmark's own: private data folder, free port, and a small client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import psutil
from docker.errors import APIError, DockerException

from backendai.agent.backends.docker.engine import PREFIX
from bench._events import Events

ROOT = Path(__file__).resolve().parent.parent
ADMIN = "admin@example.com"
IMAGE = "local/backendai-tiny:latest"
RESOURCES = {"cpu": "1", "mem": "64m"}
BARE = "bench"  # the deployment that bare starts are marked with
_REMOVAL_SECONDS = 30.0
_START_SECONDS = 180.0
_IMAGE_BUILD_SECONDS = 1800.0
_EVENT_SECONDS, _END_SECONDS = 20.0, 120.0
_IDLE_SECONDS = 2.0  # the server closes a connection after five
_SLOTS = "cpu=1000,mem=4t"  # bursts must wait for the engine, not for room
_ADD_IMAGE = (
    "from backendai.domain.catalog.models import Image;"
    f"Image.objects.get_or_create(name='tiny', defaults={{'reference': {IMAGE!r}}})"
)


_ADD_PEOPLE = (
    "from backendai.domain.accounts.models import Project;"
    "from backendai.domain.accounts.services import create_person, create_token, get_or_create_project;"
    "first = Project.objects.order_by('created_at').first();"
    "project = get_or_create_project('elsewhere', 'elsewhere') if {strangers} else first;"
    "people = [create_person(f'bench-{{n}}@example.com', password=None, project=project) for n in range({number})];"
    "print(*(create_token(person, 'bench')[1] for person in people))"
)
# Sessions are processes of this machine, in which the Python of the machine runs.
NATIVE = {"BACKENDAI_AGENT_BACKEND": "process", "BACKENDAI_AGENT_ENVIRONMENTS": "off"}


def say(text: str) -> None:
    """Print progress; standard output is for the figures."""
    print(text, file=sys.stderr, flush=True)


# One person asks for everybody here.
_UNHURRIED = {"BACKENDAI_RATE_API": "0", "BACKENDAI_RATE_LAUNCH": "0"}


class Portal:
    """A running platform. ``data`` is its folder, ``up`` its supervisor, ``token`` an administrator's."""

    def __init__(self, data: Path, environment: Mapping[str, str], *, root: Path = ROOT) -> None:
        self.data, self.root = data, root
        self.port = free_port()
        self._environment = {**os.environ, **_UNHURRIED, "BACKENDAI_AGENT_SLOTS": _SLOTS, **environment}
        self.up: subprocess.Popen[bytes] | None = None
        self.token = ""

    def start(self) -> float:
        """Run ``bin/up``; returns the seconds until the first answer."""
        command = [str(self.root / "bin/up"), "--port", str(self.port), "--data", str(self.data)]
        started_at = time.perf_counter()
        with (self.data.parent / "up.log").open("ab") as log:
            self.up = subprocess.Popen(
                command, cwd=self.root, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, _START_SECONDS, pause=0.02)
        return time.perf_counter() - started_at

    def stop(self) -> None:
        """Stop it as Ctrl-C would and wait."""
        if self.up is not None:
            self.up.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.up.wait(60)
            if self.up.poll() is None:
                os.killpg(self.up.pid, signal.SIGKILL)
        self.up = None

    def processes(self) -> dict[str, psutil.Process]:
        """Return the platform's processes by name."""
        assert self.up is not None
        named = {"up": psutil.Process(self.up.pid)}
        for one in named["up"].children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # ended since, or a zombie: building an image starts many
                if name := _name_of(one.cmdline()):
                    named[name] = one
        return named

    def make_ready(self) -> None:
        """Add the benchmark's image and a token, and wait until the node takes sessions and no image is being built."""
        self._manage("shell", "-v", "0", "-c", _ADD_IMAGE)
        self.token = self._manage("create_token", ADMIN).split()[-1]
        wait_until(self._has_agent, 60, pause=0.2)
        wait_until(self._builds_nothing, _IMAGE_BUILD_SECONDS, pause=0.5)

    def _builds_nothing(self) -> bool:
        """Return whether no image is being built, also some seconds later: builds follow each other."""
        for _ in range(10):
            if "image build" in self.processes():
                return False
            time.sleep(0.5)
        return True

    def people(self, number: int, *, strangers: bool = False) -> list[str]:
        """Return tokens of so many new people; strangers have nothing to do with the administrator."""
        code = _ADD_PEOPLE.format(number=number, strangers=strangers)
        return self._manage("shell", "--no-imports", "-v", "0", "-c", code).split()[-number:] if number else []

    def client(self) -> Client:
        """Return a client with a connection of its own."""
        return Client(self.port, self.token)

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def password(self) -> str:
        """Return the administrator's password, which the first start printed."""
        printed = re.search(r"^\s*Password\s+(\S+)", (self.data.parent / "up.log").read_text(), re.MULTILINE)
        assert printed, "the first start printed no password"
        return printed[1]

    def deployment(self) -> str:
        """Return the name under which this platform marks what it makes in the engine."""
        secrets = self.data / "secrets.json"
        return str(json.loads(secrets.read_text())["deployment"]) if secrets.exists() else ""

    def _manage(self, *arguments: str) -> str:
        told = {
            "REDIS_URL": f"unix://{self.data / 'valkey.sock'}",
            **self._environment,
            "BACKENDAI_DATA": str(self.data),
        }
        command = [sys.executable, str(self.root / "manage.py"), *arguments]
        return subprocess.run(command, env=told, check=True, capture_output=True, text=True).stdout

    def _answers(self) -> bool:
        try:
            return bool(Client(self.port, "").ask("GET", "/healthz")[0] < 500)
        except (OSError, http.client.HTTPException):
            return False

    def _has_agent(self) -> bool:
        found = self.client().ask("GET", "/api/v1/agents/")[1]
        return any(agent["status"] == "ALIVE" for agent in found["results"])


class Client:
    """One keep-alive connection to a portal; for one thread."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._used_at = 0.0
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} if token else {}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and decoded body of one call."""
        text = None if body is None else json.dumps(body)
        if time.monotonic() - self._used_at > _IDLE_SECONDS:
            self._connection.close()
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._used_at = time.monotonic()
        self._connection.request(method, path, body=text, headers=self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return answer.status, json.loads(content) if is_json else content

    def create(self, kind: str, body: object) -> dict[str, Any]:
        """Return what a POST has made, such as one of the ``sessions``. Raises RuntimeError when it is refused."""
        status, answer = self.ask("POST", f"/api/v1/{kind}/", body)
        if status != 201:
            raise RuntimeError(f"{kind}: answered with {status}: {answer}")
        return dict(answer)

    def launch(self, **wishes: object) -> str:
        """Launch one session, of the benchmark's image unless another one is wished; returns its id."""
        usual = {"image": "tiny", "resources": RESOURCES, "resource_group": "default"}
        return str(self.create("sessions", usual | wishes)["id"])

    def status(self, session_id: str) -> str:
        """Return a session's status now."""
        return str(self.ask("GET", f"/api/v1/sessions/{session_id}/")[1]["status"])

    def end(self, session_id: str) -> None:
        """Ask for a session's end, by force."""
        status, answer = self.ask("POST", f"/api/v1/sessions/{session_id}/terminate/", {"force": True})
        if status >= 300:
            raise RuntimeError(f"the end of a session was answered with {status}: {answer}")


@contextlib.contextmanager
def running_portal(database: str, environment: Mapping[str, str] | None = None) -> Iterator[Portal]:
    """Give a platform on the named kind of database, and leave nothing of it behind."""
    folder = Path(tempfile.mkdtemp(prefix="backendai-bench-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as leaving:
        leaving.callback(shutil.rmtree, folder, ignore_errors=True)
        told = dict(environment or {})
        if database == "postgres":
            told["DATABASE_URL"] = leaving.enter_context(own_postgres(folder))
        portal = Portal(folder / "data", told)
        leaving.callback(lambda: clean(portal.deployment(), folder))
        leaving.callback(portal.stop)
        portal.start()
        portal.make_ready()
        yield portal


def clean(deployment: str, folder: Path) -> None:
    """Remove the containers and networks of this deployment and of bare starts, and unmount what is under folder."""
    with contextlib.suppress(DockerException):
        client = docker.APIClient(version="auto", timeout=120)
        for label in [f"{PREFIX}deployment={name}" for name in (BARE, deployment) if name]:
            _remove_containers(client, label)
            for network in client.networks(filters={"label": [label]}):
                with contextlib.suppress(APIError):
                    client.remove_network(network["Id"])
    mounted = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in mounted:
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False)


def _remove_containers(client: docker.APIClient, label: str) -> None:
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while left := client.containers(all=True, filters={"label": [label]}):
        for container in left:
            with contextlib.suppress(APIError):  # gone, or somebody is at it
                client.remove_container(container["Id"], force=True, v=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)


def end_all(client: Client, events: Events, session_ids: list[str]) -> None:
    """End these sessions and wait until they are gone."""
    for session_id in session_ids:
        client.end(session_id)
    for session_id in session_ids:
        try:
            events.time_of(session_id, "TERMINATED", timeout=_EVENT_SECONDS)
        except TimeoutError:  # under load an event may be lost: they are hints
            wait_until(lambda one=session_id: client.status(one) == "TERMINATED", _END_SECONDS, pause=0.5)
            say(f"  the last event of session {session_id} was lost")


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(is_so: Any, seconds: float, *, pause: float) -> None:
    """Wait until the condition holds; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s in vain")
        time.sleep(pause)


def _name_of(command: list[str]) -> str:
    words = " ".join(command)
    marks = {
        "warm_parent.parent node": "parent",
        "warm_parent.parent portal": "parent_portal",
        "uvicorn": "web",
        "celery worker": "control",
        " worker ": "control",
        " beat ": "beat",
        " agent --": "agent",
        "bin/build-": "image build",  # of the process that watches over images
        "valkey-server": "valkey",
        " appproxy": "appproxy",
        " sshgate": "sshgate",
    }
    return next((name for mark, name in marks.items() if mark in words), "")


@contextlib.contextmanager
def own_postgres(folder: Path) -> Iterator[str]:
    """Give the address of a PostgreSQL of our own, with its default durability."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        raise RuntimeError("PostgreSQL is not installed: apt install postgresql")
    data, port = folder / "postgres", free_port()
    data.mkdir()
    as_user = []
    if os.geteuid() == 0:  # PostgreSQL refuses root
        shutil.chown(data, "postgres", "postgres")
        as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "--"]
    options = ["-D", str(data), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8"]
    subprocess.run([*as_user, programs[-1] / "initdb", *options], check=True, capture_output=True, cwd="/")
    options = ["-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
    with (folder / "postgres.log").open("wb") as log:
        server = subprocess.Popen([*as_user, programs[-1] / "postgres", *options], stdout=log, stderr=log, cwd="/")
    try:
        ready = [programs[-1] / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_until(lambda: subprocess.run(ready).returncode == 0, 30, pause=0.1)
        yield f"postgres://postgres@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
