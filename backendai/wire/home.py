"""Disk use of a kernel's home folder, as its agent reports it."""

from __future__ import annotations

from pydantic import Field

from backendai.wire.fields import Order


class HomeLook(Order):
    """Disk use of a home folder: ``pip_bytes`` and ``packages`` count ``~/.local``, ``home_bytes`` the rest. If not
    ``complete``, the numbers are lower bounds. ``disk_used`` and ``disk_limit`` are those of the disk that holds home
    and temporary folder; None if that disk is shared with others."""

    home_bytes: int = Field(ge=0)
    pip_bytes: int = Field(ge=0)
    packages: int = Field(ge=0)
    complete: bool
    disk_used: int | None = Field(default=None, ge=0)
    disk_limit: int | None = Field(default=None, ge=0)
