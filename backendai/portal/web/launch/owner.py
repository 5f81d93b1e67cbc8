"""Finds the owner of a launch: the user, or a person whom an administrator has looked up."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import QueryDict

from backendai.base.core.errors import UserError
from backendai.domain.accounts.acting import owner_named
from backendai.domain.accounts.models import User
from backendai.portal.web.frame.requests import PageRequest
from backendai.portal.web.launch.fields.owner_fields import FOR_ONESELF, LONGEST_ADDRESS
from backendai.portal.web.launch.form import LaunchForm

# What was chosen among the things of one owner means nothing for the next.
_OF_ONE_OWNER = frozenset(
    {"owner", "access_key", "project", "resource_group", "image", "preset", "agents", "depends_on", "replaces"}
)


class RequestedOwner(NamedTuple):
    """The owner of the requested session. ``typed``: the given address; ``unknown``: its error."""

    owner: User
    typed: str
    unknown: str


def asked_owner(request: PageRequest) -> RequestedOwner:
    """Return the owner of the session that a launch request names.

    If the address is unknown, the owner is the requester, and ``unknown`` holds the error.
    """
    asked = request.POST if request.method == "POST" else request.GET
    typed = "" if asked.get("for_whom") == FOR_ONESELF else asked.get("owner", "")[:LONGEST_ADDRESS].strip()
    try:
        return RequestedOwner(owner_named(request.user, typed), typed, "")
    except UserError as error:
        return RequestedOwner(request.user, typed, error.message)


def kept_for_another(sent: QueryDict) -> dict[str, Any]:
    """Return initial values from a sent form after its owner has changed.

    Fields that belong to one owner are left out.
    """
    fields = {name: field for name, field in LaunchForm.base_fields.items() if name not in _OF_ONE_OWNER}
    kept = {name: field.widget.value_from_datadict(sent, {}, name) for name, field in fields.items()}
    amounts = {name: text for name, text in sent.items() if name.startswith("slot.")}
    own = {} if sent.get("preset") else {"preset": ""}
    return kept | amounts | own
