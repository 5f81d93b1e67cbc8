"""Describes the layout of a storage host's disk, and the marker file that identifies the host.

``<root>/.backendai-storage.json`` names deployment, host and the uid that owns files. Without this file (for example if
a share is not mounted) nothing is served, mounted or written. A folder is ``<root>/<2 hex>/<uuid>`` with ``meta.json``,
``data`` (the only part that kernels mount), ``incoming`` and ``trash``.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from backendai.base.core.messages import Message

MARKER = ".backendai-storage.json"
DATA, INCOMING, TRASH, META = "data", "incoming", "trash", "meta.json"
_LONGEST_MARKER = 4096


class StorageMissing(Exception):
    """The storage host's path has no valid marker file: it is not mounted or is another host."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of the marker file, which identifies a storage host and its deployment."""

    deployment: str
    host: str
    uid: int


def folder_path(root: Path, folder_id: UUID) -> Path:
    """Return the directory of a folder. Kernels see only ``data`` in it."""
    return root / folder_id.hex[:2] / str(folder_id)


def write_marker(root: Path, marker: Marker) -> None:
    """Write the marker file of a new storage host. Raises FileExistsError if there is one already."""
    text = json.dumps({"deployment": marker.deployment, "host": marker.host, "uid": marker.uid})
    descriptor = os.open(root / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_marker(root: Path, *, host: str, deployment: str = "") -> Marker:
    """Return the marker of a storage host. Raises StorageMissing if the path has no valid marker, or belongs to another
    host or deployment; users read that error, so it does not name the path."""
    try:
        descriptor = os.open(root / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = json.loads(file.read(_LONGEST_MARKER))
        marker = Marker(str(content["deployment"]), str(content["host"]), int(content["uid"]))
    except FileNotFoundError as error:
        raise StorageMissing(
            Message(
                "The share of {host} is not mounted, or was never prepared: {marker} is missing.",
                host=host,
                marker=MARKER,
            )
        ) from error
    except OSError as error:
        text = Message("{marker} of {host} cannot be read: {error}.", marker=MARKER, host=host, error=error.strerror)
        raise StorageMissing(text) from error
    except (ValueError, KeyError, TypeError) as error:
        raise StorageMissing(Message("{marker} of {host} is damaged.", marker=MARKER, host=host)) from error
    if marker.host != host or (deployment and marker.deployment != deployment):
        raise StorageMissing(
            Message(
                "The path of {host} is the storage host {other} of deployment {deployment}.",
                host=host,
                other=marker.host,
                deployment=marker.deployment,
            )
        )
    return marker
