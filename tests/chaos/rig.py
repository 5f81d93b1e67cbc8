"""A platform with everything around it that a fault may strike, and hands to reach it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from uuid import UUID

import psycopg
from celery import Celery
from redis import Redis

from backendai.base.wire.broker.queues import broker_address
from tests.chaos.clock import MovableClock
from tests.chaos.nodes import AGENTS, DockerNodes, Missed, NativeNodes, Nodes
from tests.chaos.relay import Relay
from tests.chaos.servers import Postgres, RedisServer
from tests.system.platform import ROOT, Platform, free_port

AGENT_NAMES = [f"agent-{number}" for number in range(1, AGENTS + 1)]
_DISK_MEGABYTES = 700


class Rig:
    """Use as a context manager. ``kind``: "sqlite", with the broker that ``bin/up`` starts; "postgresql", with a Redis
    beside it and a relay in front of each; "docker", as "sqlite" with containers instead of native processes. For root
    all data is on a small disk of its own."""

    def __init__(self, kind: str, logs: Path) -> None:
        self.kind, self._logs = kind, logs
        self.killed_kernels: set[UUID] = set()
        self.supervisor_starts = 0
        self._stack = ExitStack()
        self._over = threading.Event()
        self.postgres: Postgres | None = None
        self.redis: RedisServer | None = None
        self.to_database: Relay | None = None
        self.to_broker: Relay | None = None
        self.disk: Path | None = None

    def __enter__(self) -> Rig:
        with ExitStack() as stack:
            scratch = Path(tempfile.mkdtemp(prefix="backendai-chaos-"))
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            scratch.chmod(0o711)  # PostgreSQL's own user must pass
            self.clock = MovableClock(scratch)
            home = scratch / "disk"
            home.mkdir(mode=0o711)
            if os.geteuid() == 0:
                stack.enter_context(_small_disk(home))
                self.disk = home
            self.nodes: Nodes = DockerNodes(stack) if self.kind == "docker" else NativeNodes()
            extra = self._start_stores(stack, home)
            self._start_platform(stack, home, extra)
            watch = threading.Thread(target=self._watch, name="watch", daemon=True)
            watch.start()
            stack.callback(watch.join, 10)
            stack.callback(self._over.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def pid_of(self, role: str) -> int:
        """Return the process id of a role. Raises Missed."""
        pid = self.pids().get(role)
        if pid is None:
            raise Missed(f"no {role}")
        return pid

    def pids(self) -> dict[str, int]:
        """Return the process ids of the platform by role, ``agent-1`` and so on included."""
        found = self.platform.pids() if self.platform.is_up else {}
        agents = {name: self.nodes.agent_pid(name) for name in AGENT_NAMES}
        return found | {name: pid for name, pid in agents.items() if pid is not None}

    def tick(self, times: int) -> None:
        """Send every tick of beat so often at once."""
        with Celery("ticks", broker=broker_address(self.broker_url), set_as_current=False) as ticks:
            for name in ("run_pass", "run_repair", "run_idle", "run_observe") * times:
                ticks.send_task(f"controller.{name}", queue="control", retry=False, ignore_result=True)

    def flush_broker(self) -> None:
        """Empty the broker: every hint that is under way is lost."""
        with Redis.from_url(self.broker_url, socket_timeout=2) as broker:
            broker.flushall()

    def change_rows(self, statement: str) -> int:
        """Run one statement beside the platform; returns the number of rows."""
        if self.postgres:
            with psycopg.connect(self.postgres.url, connect_timeout=2, options="-c lock_timeout=2s") as connection:
                return connection.execute(statement).rowcount
        with closing(sqlite3.connect(self.platform.data / "portal.sqlite3", timeout=2)) as file, file:
            return file.execute(statement).rowcount

    def count_rows(self, table: str) -> int:
        """Return how many rows a table has."""
        question = f"SELECT count(*) FROM {table}"
        if self.postgres:
            with psycopg.connect(self.postgres.url, connect_timeout=2) as connection:
                return int((connection.execute(question).fetchone() or [0])[0])
        with closing(sqlite3.connect(self.platform.data / "portal.sqlite3", timeout=5)) as file:
            return int(file.execute(question).fetchone()[0])

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a further process of the platform by hand, as a module of its Python."""
        command = [sys.executable, "-m", *arguments]
        with (self.platform.data.parent / "spawned.log").open("ab") as log:
            environment = self.platform.environment | {"PYTHONPATH": str(ROOT)}
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _start_stores(self, stack: ExitStack, home: Path) -> dict[str, str]:
        if self.kind != "postgresql":
            return {}
        self.postgres = stack.enter_context(Postgres(home))
        self.redis = stack.enter_context(RedisServer(home))
        self.to_database = stack.enter_context(Relay(("127.0.0.1", self.postgres.port)))
        self.to_broker = stack.enter_context(Relay(("127.0.0.1", self.redis.port)))
        return {
            "DATABASE_URL": f"postgres://postgres@127.0.0.1:{self.to_database.port}/postgres",
            "REDIS_URL": f"redis://127.0.0.1:{self.to_broker.port}/0",
        }

    def _start_platform(self, stack: ExitStack, home: Path, extra: Mapping[str, str]) -> None:
        self.to_portal = stack.enter_context(Relay(host=self.nodes.host))
        data, nodes = home / "data", self.nodes
        data.mkdir()
        stack.callback(self._keep_logs, home)
        address = {"BACKENDAI_PORTAL_URL": f"http://{self.nodes.host}:{self.to_portal.port}"}
        # Endpoints keep their address when the supervisor starts again.
        address |= {"BACKENDAI_APPS_PORT": str(free_port(nodes.host)), "BACKENDAI_AGENT_NATIVE_SERVING": "yes"}
        extra = {**extra, **address, **self.clock.environment}
        platform = Platform(
            data,
            host=nodes.host,
            agents=nodes.agents_of_up,
            extra=extra,
            images=nodes.images,
            engine=nodes.engine,
            backend=nodes.backend,
        )
        self.platform, self.to_portal.target = platform, (nodes.host, platform.port)
        platform.environment["BACKENDAI_DOOR_URL"] = platform.url  # the nodes' way may be cut, the portal's own is not
        stack.enter_context(platform)
        nodes.start(platform, stack, portal_port=self.to_portal.port)
        self.broker_url = self.redis.url if self.redis else f"unix://{data}/valkey.sock"

    def _watch(self) -> None:
        """Start the supervisor again whenever it has ended, as systemd would."""
        while not self._over.wait(0.5):
            if not self.platform.is_up:
                self.supervisor_starts += 1
                self.platform.spawn()

    def _keep_logs(self, home: Path) -> None:
        for file in [*home.glob("*.log"), *home.glob("data/up.log"), *home.glob("data/logs/*")]:
            with suppress(OSError):
                shutil.copy(file, self._logs)


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    options = f"size={_DISK_MEGABYTES}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
