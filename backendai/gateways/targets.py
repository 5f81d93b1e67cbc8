"""What a door lets a person reach: a port of a kernel, with the credential used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Protocol
from uuid import UUID

from backendai.accounts.credentials import Credential

NOBODY = Credential()


class Denied(Exception):
    """Access is refused. ``code`` is stable, the text is one sentence for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Guarded(Protocol):
    """What a guard remembers: by what somebody was let in, and how long the answer may be believed."""

    @property
    def credential(self) -> Credential:
        """The credentials; the guard looks again when they change."""

    @property
    def recheck_seconds(self) -> float:
        """The age at which the answer is asked for again; ``inf``: the guard's own interval."""

    def is_over(self, now: datetime) -> bool:
        """Return whether its time is up, whatever the database says."""


@dataclass(frozen=True, slots=True)
class Target:
    """A port of one generation of a kernel, the gateway through which it is reached, who was let in by what, and the
    session whose use it is (None: nobody's). ``visitor`` is one name per cookie, empty for strangers. ``until``: when
    it ends by itself (None: no such time)."""

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

    def is_over(self, now: datetime) -> bool:
        """Return whether the time is up until which it was allowed, whatever the database says."""
        return self.until is not None and self.until <= now
