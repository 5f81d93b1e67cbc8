"""The files in an agent's data folder: credentials, the gateway's address, and the lock."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from backendai.base.core.errors import UserError

_CREDENTIALS = "credentials.json"
_ADDRESS = "gateway.json"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A joined agent's identity."""

    portal_url: str
    name: str
    token: str
    deployment: str
    public_key: str


def load_credentials(data: Path) -> Credentials | None:
    """Return the credentials of the last join; None if there was none or the file is unreadable. Other keys in the
    file are ignored."""
    try:
        kept = json.loads((data / _CREDENTIALS).read_text())
        return Credentials(*(kept[field.name] for field in fields(Credentials)))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def save_credentials(data: Path, credentials: Credentials) -> None:
    """Write the file atomically, readable by its owner only."""
    write_private(data / _CREDENTIALS, asdict(credentials))


def load_address(data: Path) -> tuple[str, int]:
    """Return host and port of the gateway's last socket; ``("", 0)`` if there was none."""
    try:
        kept = json.loads((data / _ADDRESS).read_text())
        return str(kept["host"]), int(kept["port"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return "", 0


def save_address(data: Path, host: str, port: int) -> None:
    """Save the gateway's address, so that the gateway gets the same one after a restart."""
    write_private(data / _ADDRESS, {"host": host, "port": port})


def lock_data(data: Path) -> int:
    """Lock the data folder until this process ends; returns the lock's descriptor.

    Raises UserError if another agent holds the lock: two agents with one identity would both act on every kernel.
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
    """Write the file atomically, readable by its owner only."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    Path(draft).replace(path)
