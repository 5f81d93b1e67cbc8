"""Stores the state of the launch form in the page's address, as query parameters named like the fields.

The page's script writes the fields that differ from the form's initial state. So links, reload and Back restore the
form. Secrets and files are neither written to the address nor read from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from backendai.base.core.secret_names import looks_secret
from backendai.portal.web.launch.field_table import NOT_IN_ADDRESS
from backendai.portal.web.launch.fields.allocation_fields import CUSTOM
from backendai.portal.web.launch.fields.mount_fields import PREFIX
from backendai.portal.web.launch.fields.roles_field import PARTS
from backendai.portal.web.launch.form import LaunchForm

# What the page sends besides the form's fields, and the parts of files, whose texts no address has.
_SENT_BY_PAGE = frozenset({"csrfmiddlewaretoken", "go", "open_app", "tab_opened", "upload", "for_whom"})
_ROWS = ("environ.name", "environ.value")
_PATH, _TEXTS = "files.path", ("files.bytes", "files.content")
_ROLES = tuple(f"roles.{part}" for part in PARTS)
_COMMANDS = frozenset({"startup_command", "roles.command", "roles.more", *_ROWS})
_OF_CUSTOM = frozenset({"cpu", "mem", "shm"})

Sent = MultiValueDict[str, str]


def said_in(query: QueryDict, form: LaunchForm) -> dict[str, list[str]]:
    """Return the values of the form's fields in an address, by the name under which each is sent."""
    known = (set(form.fields) - NOT_IN_ADDRESS - {"environ", "files", "roles"}) | {*_ROWS, *_ROLES, _PATH}
    said = {name: query.getlist(name) for name in query if name in known or name.startswith(PREFIX)}
    if any(name in _OF_CUSTOM or name.startswith("slot.") for name in said):
        said.setdefault("preset", [CUSTOM])
    return said


def with_said(usual: Sent, said: Mapping[str, list[str]]) -> Sent:
    """Return the form data of ``usual``, changed by the values of an address.

    The address has no values of variables: they keep their usual value, or must be typed again.
    """
    kept = dict(zip(usual.getlist(_ROWS[0]), usual.getlist(_ROWS[1]), strict=False))
    sent = usual.copy()
    for name, values in said.items():
        sent.setlist(name, values)
    if _PATH in said:  # names without what they stand for, but for those of the launch that fills the form
        for part in _TEXTS:
            known = dict(zip(usual.getlist(_PATH), usual.getlist(part), strict=False))
            sent.setlist(part, [known.get(path, "") for path in said[_PATH]])
    if _ROWS[0] in said:
        names, values = said[_ROWS[0]], said.get(_ROWS[1], [])
        values = [*values, *[""] * (len(names) - len(values))]
        pairs = zip(names, values, strict=False)
        values = [value or (kept.get(name, "") if looks_secret(name) else "") for name, value in pairs]
        sent.setlist(_ROWS[1], values)
        sent.setlist("emptied", [name for name, value in zip(names, values, strict=False) if name and not value])
    return sent


def is_foreign(said: Mapping[str, list[str]]) -> bool:
    """Return whether an address contains commands, which a stranger may have written."""
    return any(any(said.get(name, ())) for name in _COMMANDS)


def usual_text(usual: Sent) -> str:
    """Return the form's initial data as JSON; the script leaves equal values out of the address."""
    return json.dumps(
        {name: values for name, values in usual.lists() if any(values) and name not in NOT_IN_ADDRESS | set(_TEXTS)}
    )


def left_out() -> str:
    """Return the names that the script leaves out of the address, as JSON. It writes variables and roles by row."""
    return json.dumps(sorted(NOT_IN_ADDRESS | _SENT_BY_PAGE | {*_TEXTS, *_ROWS, *_ROLES}))
