"""The whole platform as processes, on a private data folder and a free port, as ``bin/up`` starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import psutil
import requests
from docker import APIClient
from docker.errors import APIError, NotFound

from tests import prepared
from tests.patience import patient, until
from tests.system.client import Client
from tests.system.engine import PrivateEngine
from tests.system.images import TINY

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN = 90.0
STOPPED_WITHIN = 60.0
CLEAN_WITHIN = 30.0
_TAIL_LINES = 80
_OURS = ("BACKENDAI_", "REDIS_", "DATABASE_", "DJANGO_", "DOCKER_")


class Platform:
    """Use as a context manager: on leaving, all is stopped and removed. ``agents`` is their number on this
    machine, ``extra`` are more environment variables, ``images`` more images of the catalogue by name; with ``engine``
    the containers are looked for there. ``backend``: what the agents run sessions with."""

    running: list[Platform] = []

    def __init__(
        self,
        data: Path,
        *,
        host: str = "127.0.0.1",
        agents: int = 1,
        extra: Mapping[str, str] | None = None,
        images: Mapping[str, str] | None = None,
        engine: PrivateEngine | None = None,
        backend: str = "docker",
    ) -> None:
        self.data, self.host, self.port = data, host, free_port(host)
        self.url = f"http://{host}:{self.port}"
        self._engine_url = engine.url if engine else None
        self._inside = engine.inside if engine else list[str]
        self._backend = backend
        self._agents, self._images = agents, {"tiny": TINY} | dict(images or {})
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        self.environment = kept | {
            "BACKENDAI_DATA": str(data),
            "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=2g",
            "BACKENDAI_SCRATCH_BYTES": str(64 * 2**20),
            "BACKENDAI_RATE_API": "0",
            "BACKENDAI_RATE_PAGES": "0",
            "BACKENDAI_RATE_LAUNCH": "0",
            "BACKENDAI_AGENT_ENVIRONMENTS": "off",  # they come from a package index
            **(extra or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Platform:
        self.running.append(self)
        try:
            self._prepare()
            self.start()
        except BaseException as error:
            error.add_note(self.last_words())
            self._tidy()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.last_words())
        try:
            if self.is_up:
                self.stop()
            left = self.processes()
            assert not left, f"processes were left behind: {[process.cmdline() for process in left]}"
        finally:
            self._tidy()

    @cached_property
    def engine(self) -> APIClient:
        """The container engine, which only a platform with containers needs."""
        return APIClient(base_url=self._engine_url, timeout=patient(60))

    @property
    def containers_are_used(self) -> bool:
        """Whether sessions are containers."""
        return self._backend == "docker"

    @property
    def is_up(self) -> bool:
        """Whether the supervisor runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def deployment(self) -> str:
        """The name that all our containers carry."""
        return str(json.loads((self.data / "secrets.json").read_text())["deployment"])

    def start(self) -> None:
        """Start the supervisor and wait until the portal and every agent are there."""
        self.spawn()
        until(self._answers, READY_WITHIN, "the portal answers")
        self.wait_for_agents(self._agents)

    def spawn(self) -> None:
        """Start the supervisor and wait for nothing."""
        command = [sys.executable, "-m", "backendai.ops.run.up", "--host", self.host, "--port", str(self.port)]
        with (self.data / "up.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--data", str(self.data), "--backend", self._backend, "--agents", str(self._agents)],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for_agents(self, number: int) -> None:
        """Wait until so many agents have reported from now on."""
        since, agents = datetime.now(UTC), list[Any]()

        def reported() -> bool:
            agents[:] = [agent for agent in self.client.agents() if agent["status"] == "ALIVE"]
            return sum(datetime.fromisoformat(agent["last_seen_at"]) > since for agent in agents) >= number

        until(reported, READY_WITHIN, f"{number} agents have reported", last=lambda: agents)

    def stop(self) -> None:
        """Ask the supervisor to stop and wait for its end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(patient(STOPPED_WITHIN)) == 0

    def kill(self, role: str) -> int:
        """Send SIGKILL to the process of a role; returns the process id that it had."""
        pid = self.pids()[role]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_supervisor(self) -> None:
        """Send SIGKILL to the supervisor and take its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pids(self) -> dict[str, int]:
        """Return the process ids of the supervisor's children by role; agents by their name beside ``agent``."""
        found = {}
        for child in psutil.Process(self.pid).children():
            try:
                found[_role(child)] = child.pid
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return found

    def wait_for_restart(self, role: str, former: int) -> None:
        """Wait until a new process has the role."""
        until(lambda: self.pids().get(role, former) != former, READY_WITHIN, f"{role} runs again", last=self.pids)

    def processes(self) -> list[psutil.Process]:
        """Return every process on this machine that works on our data folder, the supervisor included."""
        mark, found = str(self.data), []
        for process in psutil.process_iter():
            try:
                told = process.environ().get("BACKENDAI_DATA") == mark or mark in " ".join(process.cmdline())
                if told and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``manage.py`` as an administrator on the engine's machine would."""
        return self._python(str(ROOT / "manage.py"), *arguments)

    def audit(self) -> None:
        """Wait until ``manage.py audit`` finds nothing; its findings are the error."""
        answers: list[str] = []

        def clean() -> bool:
            run = self.manage("audit")
            answers.append(run.stdout + run.stderr)
            return run.returncode == 0

        until(clean, CLEAN_WITHIN, "the audit is clean", last=lambda: answers[-1])

    def containers(self) -> dict[UUID, dict[str, Any]]:
        """Return the inspected containers of this deployment by kernel; fails when a kernel has two."""
        found: dict[UUID, dict[str, Any]] = {}
        label = [f"backendai.deployment={self.deployment}", "backendai.kernel"]
        for entry in self.engine.containers(all=True, filters={"label": label}):
            kernel = UUID(entry["Labels"]["backendai.kernel"])
            assert kernel not in found, f"kernel {kernel} has two containers"
            with suppress(NotFound):  # it may have been removed since
                found[kernel] = self.engine.inspect_container(entry["Id"])
        return found

    def lives(self) -> dict[UUID, tuple[int, str]]:
        """Return process id and start of every container that runs: they change when one is started again."""
        states = {kernel: found["State"] for kernel, found in self.containers().items()}
        return {kernel: (state["Pid"], state["StartedAt"]) for kernel, state in states.items() if state["Running"]}

    def scratch_folders(self) -> list[Path]:
        """Return the scratch folders of kernels that exist, of all agents."""
        return [path for path in self.data.glob("agents/*/scratch/*") if not path.name.startswith("blank-")]

    def logs(self) -> str:
        """Return what all processes have said, in the order in which they said it."""
        file = self.data / "up.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def last_words(self) -> str:
        """Return the end of ``logs``."""
        return "\n".join(self.logs().splitlines()[-_TAIL_LINES:])

    def _prepare(self) -> None:
        self._take_over()
        done = self._python(
            "-m", "tests.system.prepare_data", *(f"{name}={told}" for name, told in self._images.items())
        )
        assert done.returncode == 0, done.stdout + done.stderr
        prepared.keep_assets(self.data / "static")
        # Its first start makes the storage host of this machine, which only it knows the path of.
        (self.data / "file-server.json").unlink(missing_ok=True)
        self.client = Client(self.url, done.stdout.strip().splitlines()[-1])

    def _take_over(self) -> None:
        """Begin with migrated tables and the assets of a platform before this one."""
        prepared.take_assets(self.data / "static")
        if "DATABASE_URL" not in self.environment:
            prepared.copy_sqlite(self.data / "portal.sqlite3")

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"REDIS_URL": f"unix://{self.data}/valkey.sock", "PYTHONPATH": str(ROOT)} | self.environment
        command = self._inside([sys.executable, *arguments])
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patient(300))

    def _answers(self) -> bool:
        assert self.is_up, "the supervisor has ended"
        try:
            return requests.get(f"{self.url}/healthz", timeout=patient(5), proxies={"http": ""}).ok
        except requests.RequestException:
            return False

    def _tidy(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for process in self.processes():
            process.kill()
        self.running.remove(self)
        if self._backend == "docker" and (self.data / "secrets.json").exists():
            self._clear_engine()
        if "engine" in vars(self):
            self.engine.close()
        for disk in psutil.disk_partitions(all=True):
            if disk.mountpoint.startswith(f"{self.data}/"):
                subprocess.run(["umount", "-l", disk.mountpoint], check=False)

    def _clear_engine(self) -> None:
        label = {"label": f"backendai.deployment={self.deployment}"}
        for container in self.engine.containers(all=True, filters=label):
            with suppress(NotFound):
                self.engine.remove_container(container["Id"], force=True, v=True)
        for network in self.engine.networks(filters=label):
            try:
                self.engine.remove_network(network["Id"])
            except APIError as error:
                # Seen with engine 20.10: it counts endpoints of a network that has no container any more.
                if error.status_code != 403 or self.engine.inspect_network(network["Id"])["Containers"]:
                    raise
                warnings.warn(f"the engine does not let go of {network['Name']}", stacklevel=2)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def _role(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    signs = {"valkey": "valkey-server", "web": "uvicorn", "control": " worker ", "beat": " beat "}
    signs |= {"sshgate": " sshgate ", "appproxy": " appproxy ", "parent": "warm_parent", "files": " backendai.files "}
    for role, sign in signs.items():
        if sign in f"{words} ":
            return role
    if " agent --name " in words:
        name = words.split()[-1]
        return "agent" if name == "local" else name.replace("local", "agent")
    return words
