"""Homes of stopped sessions: an agent stores a home as one archive in a folder, and another one starts a kernel from
it."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from backendai.base.wire.fields import Message, Order

STORE = "home.store"


class StoredHome(Order):
    """Where the archive of one kernel's home is: the file ``file`` in a folder of a storage host."""

    host: str
    folder_id: UUID
    folder_name: str
    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


class StoreWork(Order):
    """The kernel whose home an agent stores. ``most_bytes``: the largest archive (None: no limit). ``timeout``: in
    seconds.

    The kernel's programs stand still from the beginning of the job until the kernel ends. After a failed or cancelled
    job they go on. With ``grace`` the main program is ended first: SIGTERM, and SIGKILL after so many seconds.
    """

    kernel_id: UUID
    generation: int
    home: StoredHome
    most_bytes: int | None = None
    timeout: float = 1800.0
    grace: float | None = None


class StoreResult(Message):
    """The stored archive. ``entries``: the files, directories and links in it."""

    size_bytes: int = Field(default=0, ge=0, lt=2**63)
    entries: int = Field(default=0, ge=0, lt=2**63)
