"""What a node says about the home folder of a kernel."""

from __future__ import annotations

from pydantic import Field

from backendai.wire.fields import Order


class HomeLook(Order):
    """``pip_bytes`` and ``packages`` are those of ``~/.local``, ``home_bytes`` all the rest. Not ``complete``: there is
    at least this much. ``disk_used`` and ``disk_limit``: of the disk that the home and the temporary folder share; None
    where they have none of their own."""

    home_bytes: int = Field(ge=0)
    pip_bytes: int = Field(ge=0)
    packages: int = Field(ge=0)
    complete: bool
    disk_used: int | None = Field(default=None, ge=0)
    disk_limit: int | None = Field(default=None, ge=0)
