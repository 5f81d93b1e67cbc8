"""Sends orders for folders to file servers: create, describe, limit, clone, measure and delete. Also queries their
state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.domain.storage.file_server import FileServerClient, FileServerError, StorageSilent
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import QuotaMode

ABSENT, READY, CLONING, CREATING, DELETING = "absent", "ready", "cloning", "creating", "deleting"
_NOBODY = UUID(int=0)  # as the folder of a ticket: for the host itself
_PAGE = 200  # folders whose descriptions even a slow share reads within the deadline
_MOST_PAGES, _MOST_MEASURED = 5000, 200
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Measured:
    """How large a folder was when it was measured."""

    used_bytes: int
    used_files: int
    at: datetime


@dataclass(frozen=True, slots=True)
class FolderState:
    """The state of a folder on its file server. ``done_bytes`` of ``total_bytes`` (None: unknown) of a clone are
    copied."""

    state: str
    version: int = 0
    error: str = ""
    done_bytes: int = 0
    total_bytes: int | None = None
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of the storage of a host, as its file server reports it."""

    quota_mode: QuotaMode
    total_bytes: int | None
    free_bytes: int | None
    fault: str
    measured: Mapping[UUID, Measured]  # what was measured lately


@dataclass(frozen=True, slots=True)
class KnownFolder:
    """A folder's directory on a storage host, with the contents of its ``meta.json``."""

    folder_id: UUID
    version: int
    meta: dict[str, Any]


def meta_of(folder: Folder) -> dict[str, Any]:
    """Return the facts that are stored beside the folder's data; its row can be restored from them."""
    return {
        "name": folder.name,
        "owner": owner_text(folder),
        "usage": folder.usage,
        "member_rights": folder.member_rights,
        "is_cloneable": folder.is_cloneable,
        "limit_bytes": folder.limit_bytes,
        "created_at": folder.created_at.isoformat(),
    }


def owner_text(folder: Folder) -> str:
    """Return ``user:alice@example.com`` or ``project:default/vision``."""
    if folder.project is not None:
        return f"project:{folder.project.domain.name}/{folder.project.name}"
    return f"user:{folder.user.email if folder.user else ''}"


def order_creation(folder: Folder) -> None:
    """Create the folder's directory; a repeated call changes nothing. A linked folder gets only its description."""
    order(folder, "PUT", "", {"meta": meta_of(folder)})
    if folder.linked_path:
        order(folder, "PUT", "/link", {"path": folder.linked_path})
    elif folder.limit_bytes is not None:
        order_limit(folder)


def order_description(folder: Folder) -> None:
    """Write name, owner, limit and version beside the data."""
    limit = {} if folder.linked_path else {"limit": folder.limit_bytes}
    order(folder, "PUT", "/meta", {"meta": meta_of(folder), **limit})


def order_limit(folder: Folder) -> None:
    """Set the folder's limit, which the file system enforces if it can."""
    order(folder, "PUT", "/limit", {"bytes": folder.limit_bytes})


def order_clone(folder: Folder, source_id: UUID) -> None:
    """Start copying the source; ``ask_state`` returns the progress."""
    order(folder, "POST", "/clones", {"source": str(source_id), "meta": meta_of(folder)})


def order_measurement(folder: Folder) -> None:
    """Start measuring the folder; ``ask_state`` returns the result."""
    order(folder, "POST", "/measurements")


def order_deletion(folder: Folder) -> None:
    """Move the folder's directory aside; the file server deletes it in the background. A missing directory is no
    error."""
    try:
        order(folder, "DELETE", "")
    except FileServerError as error:
        if error.status != 404:
            raise


def ask_state(folder: Folder) -> FolderState:
    """Return the folder's state on its file server; ABSENT if it is unknown there."""
    try:
        answer = order(folder, "GET", "")
    except FileServerError as error:
        if error.status != 404:
            raise
        return FolderState(ABSENT)
    progress = _map(answer.get("progress"))
    return FolderState(
        state=str(answer.get("state", "")),
        version=_size(answer.get("version")),
        error=str(answer.get("error") or "")[:500],
        done_bytes=_size(progress.get("bytes")),
        total_bytes=None if progress.get("total_bytes") is None else _size(progress["total_bytes"]),
        measured=measured_in(answer.get("size")),
    )


def ask_host(host: StorageHost) -> HostState:
    """Return the state of the host's storage. Raises StorageSilent."""
    answer = _of_host(host, "/v1/host")
    if answer.get("host") != host.name:
        text = Message(
            "At {address} answers storage host {host}, not {expected}.",
            address=host.address,
            host=repr(answer.get("host")),
            expected=host.name,
        )
        raise StorageSilent(text, code="other-host")
    quota_mode = QuotaMode.ENFORCED if answer.get("quota_mode") == QuotaMode.ENFORCED else QuotaMode.MEASURED
    sizes = [None if answer.get(name) is None else _size(answer[name]) for name in ("total_bytes", "free_bytes")]
    told = [_map(row) for row in list(answer.get("measured") or [])[:_MOST_MEASURED]]
    measured = {UUID(str(row["id"])): found for row in told if (found := measured_in(row))}
    return HostState(quota_mode, sizes[0], sizes[1], str(answer.get("fault") or "")[:500], measured)


def measured_in(size: Any) -> Measured | None:
    """Return the size in an answer of the file server; None if the folder is not measured yet."""
    told = _map(size)
    return Measured(_size(told["bytes"]), _size(told["files"]), _moment(told["at"])) if told.get("at") else None


def list_folders(host: StorageHost) -> Iterator[KnownFolder]:
    """Yield every folder whose directory is on the host, page by page. Raises StorageSilent."""
    after: str | None = None
    for _ in range(_MOST_PAGES):
        answer = _of_host(host, "/v1/host/folders", {"after": after, "limit": _PAGE})
        for row in answer.get("folders", []):
            yield KnownFolder(UUID(str(row["id"])), _size(row.get("version")), _map(row.get("meta")))
        after = answer.get("next")
        if not after:
            return


def order(folder: Folder, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send one order about the folder, with its version; raises FileServerError."""
    client = FileServerClient(folder.host)
    url = f"/v1/folders/{folder.pk}{path}"
    return client.call(method, url, folder_id=folder.pk, version=folder.version, rights="manage", body=body)


def _of_host(host: StorageHost, path: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    client = FileServerClient(host)
    return client.call("GET", path, folder_id=_NOBODY, version=0, rights="manage", query=query)


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _size(value: Any) -> int:
    return min(max(0, int(value or 0)), _LARGEST)


def _moment(value: Any) -> datetime:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    moment = datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
