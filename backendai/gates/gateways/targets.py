"""The port of a kernel that a connection may reach, with the credential used."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Protocol
from uuid import UUID

from backendai.domain.accounts.sign_in.credentials import Credential

NOBODY = Credential()


class Denied(Exception):
    """Access is refused. ``code`` is stable, the text is one sentence for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Guarded(Protocol):
    """The values that a guard caches for a connection: its credential, and how long the check is valid."""

    @property
    def credential(self) -> Credential:
        """The credential; when it changes, the guard checks again."""

    @property
    def recheck_seconds(self) -> float:
        """The age in seconds at which the guard checks again; ``inf``: the guard's own interval."""

    def is_over(self, now: datetime) -> bool:
        """Return whether the access has expired, without a query."""


@dataclass(frozen=True, slots=True)
class Target:
    """A port of one generation of a kernel, and the gateway through which it is reached.

    Also has the credential, and the session whose use counts (None: none). ``visitor`` is a name for each cookie, empty
    for strangers. ``until``: when the access expires (None: never). ``slowness``: that of the agent.
    """

    kernel_id: UUID
    generation: int
    service: str
    port: int
    gateway_url: str
    credential: Credential = NOBODY
    session_id: UUID | None = None
    visitor: str = ""
    until: datetime | None = None
    recheck_seconds: float = inf
    slowness: int = field(default=1, compare=False)

    def is_over(self, now: datetime) -> bool:
        """Return whether the access has expired, without a query."""
        return self.until is not None and self.until <= now
