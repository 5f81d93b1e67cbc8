"""Lists the claims on a folder that no session mounts now: stopped endpoints and waiting runs.

A room above registers a function of its module ``folder_claims``; Django imports these modules at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice

from backendai.base.core.messages import Message
from backendai.domain.storage.models import Folder

Claims = Callable[[Folder], Iterable[Message]]
_registered: list[Claims] = []


def register_claims(claims: Claims) -> Claims:
    """Register a function that returns claims, and return it. It may use a fixed number of queries for each folder."""
    _registered.append(claims)
    return claims


def claims_on(folder: Folder, *, most: int) -> list[Message]:
    """Return the claims on the folder as messages, ``most`` at most."""
    return list(islice(chain.from_iterable(claims(folder) for claims in _registered), most))
