"""What needs a folder although no session mounts it now: an endpoint that is stopped, a run that waits.

A room above adds what it knows by a function in its module ``folder_claims`` that it registers; Django imports these
modules at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice

from backendai.core.messages import Message
from backendai.storage.models import Folder

Claims = Callable[[Folder], Iterable[Message]]
_registered: list[Claims] = []


def register_claims(claims: Claims) -> Claims:
    """Ask this function from now on; a fixed number of queries for each folder. Returns it."""
    _registered.append(claims)
    return claims


def claims_on(folder: Folder, *, most: int) -> list[Message]:
    """Return in words what needs the folder, ``most`` claims at most."""
    return list(islice(chain.from_iterable(claims(folder) for claims in _registered), most))
