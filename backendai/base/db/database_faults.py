"""Distinguishes errors of an unreachable, busy or full database from errors of a statement."""

from __future__ import annotations

import errno
import sqlite3
from typing import Any

_CANNOT_OPEN = 14  # SQLITE_CANTOPEN, in the lower byte of an extended code
# Connection exceptions, server shutting down or starting, too many connections. No time-outs and locks.
_STATES = ("08", "57P01", "57P02", "57P03", "53300")
# Lock time-out, statement time-out or cancellation, deadlock, conflict of transactions.
_BUSY_STATES = ("55P03", "57014", "40P01", "40001")
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED, in the lower byte of an extended code
_FULL = (13, 4874)  # SQLITE_FULL; SQLITE_IOERR_SHMSIZE: no room for the index of the write-ahead log
_DISK_FULL = "53100"


def is_full(error: BaseException) -> bool:
    """Return whether the error means a full disk of the portal or of its database."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause: Any = error.__cause__
    if isinstance(cause, sqlite3.OperationalError):
        return getattr(cause, "sqlite_errorcode", 0) in _FULL
    return getattr(cause, "sqlstate", None) == _DISK_FULL


def is_away(error: BaseException) -> bool:
    """Return whether the error means an unreachable database; an exhausted pool counts too."""
    cause: Any = error.__cause__
    if isinstance(cause, sqlite3.OperationalError):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF == _CANNOT_OPEN
    # Agents load this package without the driver of PostgreSQL, so its errors are recognised by name.
    if "OperationalError" not in {kind.__name__ for kind in type(cause).__mro__} or not hasattr(cause, "sqlstate"):
        return False
    state: str | None = cause.sqlstate
    return state is None or state.startswith(_STATES)


def is_busy(error: BaseException) -> bool:
    """Return whether the error means that a retry of the statement can succeed."""
    cause: Any = error.__cause__
    if isinstance(cause, sqlite3.OperationalError):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _BUSY
    return getattr(cause, "sqlstate", None) in _BUSY_STATES
