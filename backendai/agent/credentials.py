"""What a node keeps on its disk: who it is, the port of its gateway, and the lock of its data folder."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backendai.core.errors import UserError

_CREDENTIALS = "credentials.json"
_ADDRESS = "gateway.json"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A joined node's identity. ``broker_url``: what portals gave that knew no accounts (see ``broker``)."""

    portal_url: str
    name: str
    token: str
    broker_url: str
    deployment: str
    public_key: str


def load_credentials(data: Path) -> Credentials | None:
    """Return what the last join wrote, or None when this node never joined (or the file is of no use)."""
    try:
        return Credentials(**json.loads((data / _CREDENTIALS).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def save_credentials(data: Path, credentials: Credentials) -> None:
    """Write the file whole or not at all, readable by its user only."""
    write_private(data / _CREDENTIALS, asdict(credentials))


def load_address(data: Path) -> tuple[str, int]:
    """Return host and port that the gateway listened on last time; ``("", 0)`` at first."""
    try:
        kept = json.loads((data / _ADDRESS).read_text())
        return str(kept["host"]), int(kept["port"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return "", 0


def save_address(data: Path, host: str, port: int) -> None:
    """Keep where the gateway listens, so that it comes back at the same place."""
    write_private(data / _ADDRESS, {"host": host, "port": port})


def lock_data(data: Path) -> int:
    """Take the data folder for this process until it ends; returns the lock's descriptor.

    A UserError when another agent holds it: two agents with one identity would fight over every kernel.
    """
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(f"Another agent already runs with {data}.", code="agent-already-runs") from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def write_private(path: Path, content: dict[str, Any]) -> None:
    """Write the file whole or not at all, readable by its user only."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    Path(draft).replace(path)
