"""Secrets that the portal makes for itself once, kept in one file that only its user can read."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import uuid
from pathlib import Path

from backendai.base.wire.tickets import new_private_key


def load_secrets(path: Path) -> dict[str, str]:
    """Return ``secret_key``, ``ticket_key`` and ``deployment`` from the file, making it (mode 0600) at first.

    Several processes may start at once: the first complete file wins and all read that one.
    """
    if not path.exists():
        _create(path, {"secret_key": secrets.token_urlsafe(50), "ticket_key": new_private_key(), "deployment": _name()})
    return dict(json.loads(path.read_text()))


def _name() -> str:
    return f"d-{uuid.uuid4().hex[:12]}"


def _create(path: Path, content: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        Path(draft).unlink()
