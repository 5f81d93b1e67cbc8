"""Disk use of a kernel's home folder, as its agent reports it."""

from __future__ import annotations

from pydantic import Field

from backendai.base.wire.fields import Order


class HomeLook(Order):
    """Disk use of a home folder, in bytes.

    ``pip_bytes`` and ``packages`` count ``~/.local``; ``home_bytes`` counts the rest. Unless ``complete``, the numbers
    are lower bounds. ``disk_used`` and ``disk_limit``: of the disk that contains the home and the temporary folder
    (None: other kernels share this disk).
    """

    home_bytes: int = Field(ge=0)
    pip_bytes: int = Field(ge=0)
    packages: int = Field(ge=0)
    complete: bool
    disk_used: int | None = Field(default=None, ge=0)
    disk_limit: int | None = Field(default=None, ge=0)
