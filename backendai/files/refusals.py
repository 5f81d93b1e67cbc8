"""Defines the errors of a file server, each with an HTTP status and a stable code."""

from __future__ import annotations

import errno
import os
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.paths.storage_layout import StorageMissing

_BY_ERRNO: dict[int, tuple[int, str, str]] = {
    errno.ENOENT: (404, "not-found", Message("There is nothing at this path.")),
    errno.ENOTDIR: (404, "not-found", Message("A part of this path is not a directory.")),
    errno.EEXIST: (409, "exists", Message("There is something at this path already.")),
    errno.ENOTEMPTY: (409, "exists", Message("There is a directory at this path that is not empty.")),
    errno.EISDIR: (422, "is-directory", Message("This is a directory; a file is needed.")),
    errno.EXDEV: (422, "path-refused", Message("A link on this path leads out of the folder.")),
    errno.ELOOP: (422, "link-refused", Message("There is a link on this path, which is not followed here.")),
    errno.ENAMETOOLONG: (422, "path-refused", Message("The path is longer than the file system allows.")),
    errno.EINVAL: (422, "path-refused", Message("The file system does not allow this path or this move.")),
    errno.EILSEQ: (422, "path-refused", Message("The file system does not allow this name.")),
    errno.ENOSPC: (
        507,
        "disk-full",
        Message("The disk of this storage host is full. Delete something or ask an administrator."),
    ),
    errno.EDQUOT: (
        507,
        "quota",
        Message("The limit of this storage (bytes or files) is reached. Delete something, or ask for a larger limit."),
    ),
    errno.EFBIG: (413, "too-large", Message("The file is larger than the file system allows.")),
    errno.EACCES: (
        403,
        "not-permitted",
        Message("The owner of the files does not have this permission (see their modes)."),
    ),
    errno.EPERM: (403, "not-permitted", Message("The file system does not permit this.")),
    errno.EROFS: (403, "read-only", Message("This storage can only be read.")),
    errno.ESTALE: (503, "storage-fault", Message("The storage has changed meanwhile. Try again.")),
    errno.EIO: (503, "storage-fault", Message("The storage cannot be read or written. Tell an administrator.")),
}


_NAMED = (errno.EACCES, errno.ENOENT, errno.EPERM)


class Refusal(UserError):
    """An error answer with an HTTP status. ``details`` become fields of its JSON body."""

    def __init__(self, status: int, code: str, message: str, **details: Any) -> None:
        super().__init__(message, code=code, **details)
        self.status = status


class StorageSilent(Refusal):
    """The disk of a storage host does not answer."""

    def __init__(self, host: str) -> None:
        text = Message("The storage host {host} does not answer. Try again later.", host=host)
        super().__init__(503, "storage-silent", text)


def as_refusal(error: Exception) -> Refusal | None:
    """Return the refusal for an error of the operating system or of a path; None for an unexpected error."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, StorageMissing):
        return Refusal(503, "storage-missing", str(error))
    if isinstance(error, UserError):
        return Refusal(422, error.code, error.message)
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        status, code, message = _BY_ERRNO[error.errno]
        return Refusal(status, code, _path_in(error) + message)
    return None


def _path_in(error: OSError) -> str:
    """Return the path below the folder that an error names, for the beginning of its message."""
    if error.errno not in _NAMED or not isinstance(error.filename, str | bytes):
        return ""
    path = os.fsencode(error.filename).decode(errors="replace")
    return "" if path.startswith("/") or path in ("", ".") else f"{path}: "
