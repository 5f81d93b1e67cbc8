"""Turns the document of a launch request into values of the form, and the form into what a browser sends."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from django import forms
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_duration

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.launch.field_table import COPIED
from backendai.portal.web.launch.fields.allocation_fields import CUSTOM, initial_amounts
from backendai.portal.web.launch.fields.file_fields import PARTS, FileRow, FilesField
from backendai.portal.web.launch.fields.matrix_field import matrix_text
from backendai.portal.web.launch.fields.mount_fields import MountsField, sent_of, start_in, wishes_of
from backendai.portal.web.launch.fields.presets import typed_amounts
from backendai.portal.web.launch.fields.roles_field import PARTS as ROLE_PARTS
from backendai.portal.web.launch.fields.roles_field import RolesField, rows_of_roles
from backendai.portal.web.launch.fields.template_fields import unshown_in
from backendai.portal.web.launch.fields.variables import VariablesField

_LONGEST_NAME = 64
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def initial_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the initial values of the form's fields for a request document.

    Leaves out the start time, which belonged to the earlier launch.
    """
    values = {name: said[name] for name in COPIED if name in said}
    if "type" in said:
        values["session_type"] = said["type"]
    if isinstance(span := said.get("batch_timeout"), str):
        values["batch_timeout"] = parse_duration(span)  # of a document without a version
    elif span:
        values["batch_timeout"] = timedelta(seconds=span)
    if "environ" in said:
        values["environ"] = {name: value or "" for name, value in said["environ"].items()}
    if agents := said.get("agents"):
        values["agents"] = agents[0]
    if mounts := said.get("mounts"):
        wishes = wishes_of(mounts)
        values |= {"mounts": wishes, "start_in": start_in(wishes, str(said.get("start_in") or ""))}
    if roles := said.get("roles"):
        values["roles"] = rows_of_roles(roles)
    if matrix := said.get("matrix"):
        values["matrix"] = matrix_text(matrix)
    if parameters := said.get("parameters"):
        values["parameters"] = json.dumps(parameters)
    if unshown := unshown_in(said):
        values["unshown"] = unshown
    values["preset"] = said.get("preset", CUSTOM)
    return values | _amounts(said.get("resources", {}))


def sent_by(form: forms.Form) -> MultiValueDict[str, str]:
    """Return the data that a browser would send for the form in its current state."""
    data: MultiValueDict[str, str] = MultiValueDict()
    for bound in form:
        value = bound.value()
        if value in (None, "") and type(bound.field.widget) is forms.Select:
            value = next((str(key) for key, _label in cast(Any, bound.field).choices), "")  # as a browser does
        if isinstance(bound.field, FilesField):
            for part, name in PARTS.items():
                data.setlist(f"{bound.html_name}.{part}", [getattr(row, name) for row in value or ()])
        elif isinstance(bound.field, MountsField):
            data.setlist(bound.html_name, [wish.folder for wish in value or ()])
            data.update(sent_of(value or ()))
        elif isinstance(bound.field, RolesField):
            for part in ROLE_PARTS:
                data.setlist(f"{bound.html_name}.{part}", [row[part] for row in value or ()])
        elif isinstance(bound.field, VariablesField):
            rows = list(value.items() if isinstance(value, Mapping) else value or ())
            data.setlist(f"{bound.html_name}.name", [name for name, _ in rows])
            data.setlist(f"{bound.html_name}.value", [text for _, text in rows])
        elif isinstance(value, (list, tuple)):
            data.setlist(bound.html_name, [str(one) for one in value])
        elif value is True:
            data[bound.html_name] = "on"
        elif value not in (None, False):
            data[bound.html_name] = str(value)
    return data


def free_name(owner: User, name: str, count: int = 1) -> str:
    """Return the name, with a random suffix if a live session of the owner has it.

    For ``count`` sessions it also checks the numbered names.
    """
    numbers = [f"-{number}" for number in range(1, count + 1)] if count > 1 else [""]
    wanted = [name + number for number in numbers]
    if not ComputeSession.objects.live().filter(owner=owner, name__in=wanted).exists():
        return name
    end = "-" + "".join(secrets.choice(_LETTERS) for _ in range(4))
    room = _LONGEST_NAME - len(end + numbers[-1])
    return name[:room].rstrip("._-") + end


def files_in(said: Mapping[str, Any], kept: Mapping[str, FileRow] | None = None) -> list[FileRow]:
    """Return the files of a request as rows. ``kept``: files with contents, for those that the request only names."""
    return [
        FileRow(one["path"], content=one.get("content") or "")
        if isinstance(one, Mapping)
        else (kept or {}).get(one, FileRow(one))
        for one in said.get("files", ())
    ]


def _amounts(resources: Mapping[str, Any]) -> dict[str, str]:
    try:
        return initial_amounts(typed_amounts(Slots.parse(resources)))
    except UserError:
        return {}
