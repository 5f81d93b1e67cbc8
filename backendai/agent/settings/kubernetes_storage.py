"""The storage hosts of a pool, as volumes of pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backendai.base.core.errors import UserError

VARIABLE = "BACKENDAI_KUBERNETES_STORAGE"
_HOST = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_FORMS = "use host=claim:NAME, host=nfs:SERVER:/PATH or host=path:/PATH, each host once, separated by commas"


@dataclass(frozen=True, slots=True)
class PoolStorage:
    """One storage host: a volume claim of the namespace (``folder``: a path in it), an NFS server, or a path on all
    nodes of the pool."""

    claim: str = ""
    server: str = ""
    path: str = ""
    folder: str = ""

    @property
    def source(self) -> dict[str, Any]:
        """The volume in the form of a pod's spec. A pod does not start on a node that lacks the path."""
        if self.claim:
            return {"persistentVolumeClaim": {"claimName": self.claim}}
        if self.server:
            return {"nfs": {"server": self.server, "path": self.path}}
        return {"hostPath": {"path": self.path, "type": "Directory"}}


def read_storage(environ: Mapping[str, str]) -> dict[str, PoolStorage]:
    """Return the storage hosts of a pool by name. Raises UserError."""
    found: dict[str, PoolStorage] = {}
    for part in filter(None, (part.strip() for part in environ.get(VARIABLE, "").split(","))):
        name, _, place = part.partition("=")
        storage = _read(place)
        if storage is None or not _HOST.match(name) or name in found:
            raise UserError(f"{VARIABLE} has {part!r}: {_FORMS}.", field=VARIABLE)
        found[name] = storage
    return found


def _read(text: str) -> PoolStorage | None:
    kind, _, place = text.partition(":")
    if kind == "claim":
        claim, _, folder = place.partition("/")
        return PoolStorage(claim=claim, folder=folder) if _HOST.match(claim) and _is_plain(folder) else None
    server, path = place.rpartition(":")[::2] if kind == "nfs" else ("", place)
    is_known = bool(server) if kind == "nfs" else kind == "path"
    return PoolStorage(server=server, path=path) if is_known and path[:1] == "/" and _is_plain(path) else None


def _is_plain(path: str) -> bool:
    return ".." not in path.split("/")
