"""Finds the app or the folder that a host name stands for."""

from __future__ import annotations

from datetime import datetime

from backendai.domain.storage.file_origins import folders_at
from backendai.gates.appproxy.file_grants import FolderTarget, open_files_by, redeem_file_code
from backendai.gates.appproxy.grants import open_by, redeem
from backendai.gates.gateways.targets import Target

AnyTarget = Target | FolderTarget
Key = tuple[tuple[str, ...], str]  # the texts of cookies or of a header, and the host


def redeem_at(code: str, host: str, now: datetime, *, origin: str = "") -> str:
    """Exchange a code for the secret that opens the app or folder of this host. Raises Denied."""
    exchange = redeem_file_code if _has_files(host) else redeem
    return exchange(code, host, now, origin=origin)


def open_at(key: Key, now: datetime) -> AnyTarget:
    """Return the app or folder that the cookies, or the header's secret, open at this host now. Raises Denied."""
    texts, host = key
    return open_files_by(texts, host, now) if _has_files(host) else open_by(texts, host, now)


def _has_files(host: str) -> bool:
    # An app may be called "files" too: then its digits are those of a session.
    folders = folders_at(host)
    return folders is not None and folders.exists()
