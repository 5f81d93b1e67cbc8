"""For whom a launch is meant: oneself, or whom an administrator has looked up."""

from __future__ import annotations

from typing import NamedTuple

from backendai.accounts.acting import owner_named
from backendai.accounts.models import User
from backendai.core.errors import UserError
from backendai.web.requests import PageRequest

_LONGEST_ADDRESS = 254


class Asked(NamedTuple):
    """Whose the session is to be; ``typed`` is the address that was given, ``unknown`` says what is wrong with it."""

    owner: User
    typed: str
    unknown: str


def asked_owner(request: PageRequest) -> Asked:
    """Return for whom the request asks; for an address that is nobody's it is oneself."""
    asked = request.POST if request.method == "POST" else request.GET
    typed = asked.get("owner", "")[:_LONGEST_ADDRESS].strip()
    try:
        return Asked(owner_named(request.user, typed), typed, "")
    except UserError as error:
        return Asked(request.user, typed, error.message)
