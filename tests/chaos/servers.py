"""A PostgreSQL, a Redis and whatever else may be killed: started again a second after its end, as by an init system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg
from redis import Redis
from redis.exceptions import RedisError

from tests.patience import until
from tests.system.platform import free_port

_AGAIN_AND_AGAIN = 'while :; do setpriv --pdeathsig KILL -- "$@"; sleep 1; done'
_UP_WITHIN = 60.0


class Kept:
    """A program that is started again whenever it ends. Use as a context manager, in the main thread: all of it dies
    with the thread that started it. ``program`` is a part of its processes' name."""

    def __init__(
        self, program: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._program, self._command, self._log, self._environment = program, command, log, environment

    def __enter__(self) -> Self:
        loop = ["setpriv", "--pdeathsig", "KILL", "--", "bash", "-c", _AGAIN_AND_AGAIN, "loop", *self._command]
        with self._log.open("ab") as log:
            self._loop = subprocess.Popen(
                loop, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=self._environment
            )
        until(self.answers, _UP_WITHIN, f"{self._program} answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.send_signal(signal.SIGSTOP)  # else it starts another one meanwhile
        family = self.family()
        self._loop.kill()
        self._loop.wait()
        for process in family:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=10)

    def family(self) -> list[psutil.Process]:
        """Return its processes, the first one first; none while it is being started again."""
        found = []
        for process in psutil.Process(self._loop.pid).children(recursive=True):
            with suppress(psutil.Error):
                if self._program in process.name():
                    found.append(process)
        return found

    def kill(self) -> None:
        """Send SIGKILL to the first process."""
        for process in self.family()[:1]:
            process.kill()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Kill it and start it again at the end of the context."""
        self._loop.send_signal(signal.SIGSTOP)  # else it starts another one
        try:
            self.kill()
            until(lambda: not self.answers(), _UP_WITHIN, f"{self._program} is down")
            yield
        finally:
            self._loop.send_signal(signal.SIGCONT)
        until(self.answers, _UP_WITHIN, f"{self._program} answers again")

    def freeze(self) -> list[psutil.Process]:
        """Stop all its processes; returns those to resume."""
        family = self.family()
        for process in family:
            with suppress(psutil.Error):
                process.suspend()
        return family

    def answers(self) -> bool:
        """Return whether it is ready."""
        return True


class Postgres(Kept):
    """``url`` is the address of an empty database; ``port`` where it listens."""

    def __init__(self, folder: Path) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        data, self.port = folder / "postgres", free_port()
        data.mkdir()
        person: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses root
            shutil.chown(data, "postgres", "postgres")
            person = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "--"]
        make = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-sync"]
        subprocess.run([*person, *make], check=True, capture_output=True, cwd="/", timeout=120)
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        options |= {"max_connections": 200, "fsync": "off", "full_page_writes": "off", "max_wal_size": "64MB"}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        # Rights are given up first: the change would clear the death signal.
        command = [*person, "setpriv", "--pdeathsig", "KILL", "--", str(programs / "postgres"), "-D", str(data), *words]
        super().__init__("postgres", command, folder / "postgres.log")
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


class RedisServer(Kept):
    """``url`` is its address; ``port`` where it listens."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        super().__init__("redis", ["redis-server", *options, "--dir", str(folder)], folder / "redis.log")
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        try:
            with Redis.from_url(self.url, socket_timeout=2) as client:
                return bool(client.ping())
        except RedisError:
            return False
