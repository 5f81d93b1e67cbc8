"""Fills the launch form from an earlier request: a recent launch, or a session."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django import forms
from django.db.models import QuerySet
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_duration

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.acting import people_to_act_for, projects_to_act_in
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, LaunchRecord
from backendai.domain.compute.services.requests.session_files import launch_files_of
from backendai.portal.web.launch.fields.allocation_fields import CUSTOM, initial_amounts
from backendai.portal.web.launch.fields.file_fields import PARTS, FileRow, FilesField, rows_of_files
from backendai.portal.web.launch.fields.matrix_field import matrix_text
from backendai.portal.web.launch.fields.mount_fields import MountsField, sent_of, start_in, wishes_of
from backendai.portal.web.launch.fields.presets import typed_amounts
from backendai.portal.web.launch.fields.roles_field import PARTS as ROLE_PARTS
from backendai.portal.web.launch.fields.roles_field import RolesField, rows_of_roles
from backendai.portal.web.launch.fields.template_fields import unshown_in
from backendai.portal.web.launch.fields.variables import VariablesField

_LONGEST_NAME = 64
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_AS_THEY_ARE = (
    "image",
    "name",
    "startup_command",
    "project",
    "resource_group",
    "shm",
    "cluster_size",
    "cluster_mode",
    "priority",
    "depends_on",
    "depends_when",
    "preopen_ports",
    "retry_on_agent_loss",
    "access_key",
    "count",
    "template",
    "done_when",
    "command_in",
    "array_size",
    "retries",
)


@dataclass(frozen=True, slots=True)
class Refill:
    """The values from an earlier launch.

    ``gone``: why a field's value can no longer be used; ``notes``: hints for the user; ``locked``: keys that the
    template fixes.
    """

    record: LaunchRecord
    owner: User
    initial: dict[str, Any]
    gone: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_template: bool = False
    locked: Sequence[str] = ()

    def leave_empty(self, form: forms.Form, sent: MultiValueDict[str, str]) -> None:
        """Remove values that no longer exist from the form data. A browser would send the first choice instead."""
        for name in self.gone.keys() & {"image", "project", "resource_group"}:
            sent.setlist(name, [])
            cast(Any, form.fields[name]).empty_label = _("Choose one")

    def explain(self, form: forms.Form, chosen: Collection[str]) -> None:
        """Replace errors of the form by the reasons in ``gone``, except for fields that were ``chosen`` since."""
        for name, text in self.gone.items():
            if name in form.errors or (name == "preset" and name not in chosen):
                form.errors[name] = form.error_class([text])


def refill_of(record: LaunchRecord, actor: User) -> Refill:
    """Return the values that repeat a recent launch, for its owner and with a free name."""
    said: Mapping[str, Any] = record.document
    owner = _owner(said, actor)
    gone = gone_in(said, actor, owner or actor)
    if owner is None:
        gone["owner"] = _("The original owner no longer exists, or you may not launch for them.")
    initial = initial_of({name: value for name, value in said.items() if name not in gone})
    initial["files"] = _files(said, actor)
    if name := initial.get("name"):
        initial["name"] = free_name(owner or actor, name, int(initial.get("count") or 1))
    return Refill(record, owner or actor, initial, gone, list(_notes(said)))


def initial_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the initial values of the form's fields for a request document.

    Leaves out the start time, which belonged to the earlier launch.
    """
    values = {name: said[name] for name in _AS_THEY_ARE if name in said}
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
        values |= {"mounts": wishes_of(mounts), "start_in": start_in(said)}
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


def gone_in(said: Mapping[str, Any], actor: User, owner: User) -> dict[str, str]:
    """Return by field the objects of a request that no longer exist for this owner, with the reason.

    One query for each named object.
    """
    named: dict[str, tuple[Callable[[str], QuerySet[Any]], str]] = {
        "image": (
            lambda name: Image.objects.usable_by(owner).named(name),
            _("Image %(name)s no longer exists, or is not open to you."),
        ),
        "resource_group": (
            lambda name: ResourceGroup.objects.visible_to(owner).filter(is_active=True, name=name),
            _("Resource group %(name)s no longer exists, or is not open to you."),
        ),
        "preset": (
            lambda name: ResourcePreset.objects.visible_to(owner).filter(name=name),
            _("Preset %(name)s no longer exists; its amounts are filled in."),
        ),
        "project": (
            lambda name: projects_to_act_in(actor, owner).filter(pk=name),
            _("Its project no longer exists, or you are not a member."),
        ),
    }
    return {
        field: text % {"name": name}
        for field, (find, text) in named.items()
        if (name := said.get(field)) and not find(name).exists()
    }


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


def _files(said: Mapping[str, Any], actor: User) -> list[FileRow]:
    """Return the files with their contents, if the session that had them still exists."""
    found = launch_files_of(said["files_of"], actor) if "files_of" in said else []
    kept = {row.path: row for row in rows_of_files(found)}
    return files_in(said, kept)


def _owner(said: Mapping[str, Any], actor: User) -> User | None:
    if "owner" not in said:
        return actor
    found: User | None = people_to_act_for(actor).filter(pk=UUID(said["owner"])).first()
    return found


def _notes(said: Mapping[str, Any]) -> Iterator[str]:
    parts = [said, *said.get("roles", {}).values()]
    empty = list(
        dict.fromkeys(name for part in parts for name, value in part.get("environ", {}).items() if value is None)
    )
    if empty:
        yield _("Enter these values again; they look like secrets and are not stored: %(names)s.") % {
            "names": ", ".join(empty)
        }
    folders = [one["folder"] for one in said.get("mounts", ())]
    if len(set(folders)) < len(folders):
        yield _("A folder that was mounted in several parts is mounted in its first one alone.")
    if "starts_at" in said:
        yield _("The start time is not kept: choose another one, or the session starts as soon as possible.")


def _amounts(resources: Mapping[str, Any]) -> dict[str, str]:
    try:
        return initial_amounts(typed_amounts(Slots.parse(resources)))
    except UserError:
        return {}
