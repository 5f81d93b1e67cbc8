"""Fields of the template that fills the form, and of roles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django import forms

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.written_documents import LARGEST
from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.compute.services.requests.roles import with_size
from backendai.domain.compute.spec import RoleSpec, SessionSpec
from backendai.domain.compute.spec_document import VERSION, document_of, spec_of
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.models import TemplateVersion
from backendai.domain.templates.rendering import check_locks
from backendai.domain.templates.services.launching import from_template, version_named
from backendai.portal.web.launch.fields.mount_fields import start_in
from backendai.portal.web.launch.fields.roles_field import RoleRow, RolesField, rows_to_show

UNSHOWN = ("agents", "placement")  # of the first, the form shows one, where people may choose an agent at all
_INPUTS = {
    "type": ["session_type"],
    "image": ["image", "environment", "version", "manual_image"],
    "resources": ["preset", "cpu", "mem", "mem_unit", "slot."],
    "shm": ["shm", "shm_unit"],
    "environ": ["environ."],
    "mounts": ["mounts", "mount."],
    "files": ["files.", "upload"],
    "roles": ["roles."],
}


class TemplateFields(forms.Form):
    """Hidden fields of the template and its parameters. The page's address names them in a part of its own."""

    locked_inputs: Sequence[str] = ()
    template = forms.CharField(max_length=80, required=False, widget=forms.HiddenInput)
    parameters = forms.CharField(max_length=LARGEST, required=False, widget=forms.HiddenInput)
    unshown = forms.CharField(max_length=LARGEST, required=False, widget=forms.HiddenInput)
    roles = RolesField(required=False, label=_("Roles"))
    done_when = forms.CharField(
        max_length=64,
        required=False,
        label=_("Done when"),
        help_text=_(
            "A batch session is done when all kernels of this role have finished, or with all: every kernel. "
            "Leave empty for the main kernel."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "worker"}),
    )

    def lock(self, keys: Sequence[str]) -> None:
        """Make the inputs of these request keys read-only.

        For select inputs the page's script offers only the chosen option; other values are rejected.
        """
        self.locked_inputs = inputs_of(keys)
        for name in self.fields.keys() & set(self.locked_inputs):
            widget = self.fields[name].widget
            if isinstance(widget, forms.TextInput | forms.NumberInput | forms.Textarea):
                widget.attrs["readonly"] = True

    def role_rows(self) -> list[RoleRow]:
        """Return the entered roles with their errors, and an empty row."""
        return rows_to_show(self["roles"].value(), self["roles"].errors.as_data())

    @property
    def locked_text(self) -> str:
        """The names of the inputs that a template locks, as JSON for the page's script."""
        return json.dumps(self.locked_inputs)

    def with_unshown(self, spec: SessionSpec) -> SessionSpec:
        """Return the request with the earlier request's values for which the form has no field.

        Raises UserError for unreadable ones.
        """
        said = {key: value for key, value in _mapping_in(self.cleaned_data.get("unshown")).items() if key in UNSHOWN}
        kept = spec_of({"version": VERSION, "image": "", **said})
        agents = spec.agents or ([] if "agents" in self.fields and len(kept.agents) == 1 else kept.agents)
        return replace(spec, placement=spec.placement or kept.placement, agents=agents)

    def with_template(self, spec: SessionSpec, actor: User) -> SessionSpec:
        """Return the request with its template's version, and the template's values for which the form has no field.

        Raises UserError for a changed locked value. A template that no longer exists is left out.
        """
        reference = self.cleaned_data.get("template", "")
        if not reference:
            return spec
        try:
            version = version_named(actor, reference, project=str(spec.project or ""))
        except NotFound:
            return spec
        locked, secrets = _secrets_in(version, spec.environ)
        made = from_template(version, self._answers() | secrets, {}, secrets=False)
        base = spec_of({"version": VERSION, "image": "", **_without_gaps(made.base)})
        start = start_in(base.mounts, base.start_in)
        base = replace(
            base, image=_image_name(actor, base.image), project=_project_id(actor, base.project), start_in=start
        )
        without = from_template(version, self._answers(), {}, secrets=False).base.get("environ", {})
        waits = {name: text for name, text in base.environ.items() if without.get(name) is None}
        asked = replace(
            spec,
            environ={**waits, **spec.environ},
            resources=self._amounts(spec, base),
            roles=_with_secrets(spec.roles, base.roles),
            files=spec.files or (() if KINDS[spec.session_type].runs_program else base.files),
            template=str(version),
            parameters=made.document.get("parameters", {}),
        )
        check_locks(locked, document_of(with_size(base)), document_of(with_size(asked)), str(version))
        return asked

    def _answers(self) -> dict[str, Any]:
        return _mapping_in(self.cleaned_data.get("parameters"))

    def _amounts(self, spec: SessionSpec, base: SessionSpec) -> Mapping[str, Any]:
        """Return the form's amounts, with the template's amounts of slots for which the form has no field.

        An unchanged preset keeps the template's amounts.
        """
        if spec.preset:
            return base.resources if spec.preset == base.preset else {}
        fields = ("cpu", "mem", *(name.removeprefix("slot.") for name in self.fields))
        return {slot: amount for slot, amount in base.resources.items() if slot not in fields} | dict(spec.resources)


def locked_keys(reference: str, actor: User) -> list[str]:
    """Return the keys that a template locks; empty if it no longer exists."""
    try:
        return parts_of(version_named(actor, reference).document).locked if reference else []
    except UserError:
        return []


def inputs_of(keys: Sequence[str]) -> list[str]:
    """Return the names of the inputs for these request keys. A name that ends with a dot is a prefix."""
    found: list[str] = []
    for key in keys:
        first, _dot, rest = key.partition(".")
        if first == "resources" and rest:
            own = {"cpu": ["cpu"], "mem": ["mem", "mem_unit"]}.get(rest, [f"slot.{rest}"])
            found += [*own, "preset"]
        elif first == "environ" and rest:
            found.append(f"environ={rest}")
        else:
            found += _INPUTS.get(first, [first])
    return list(dict.fromkeys(found))


def unshown_in(said: Mapping[str, Any]) -> str:
    """Return as JSON the values of a request for which the form has no field."""
    return json.dumps(kept) if (kept := {key: said[key] for key in UNSHOWN if key in said}) else ""


def _mapping_in(text: str | None) -> dict[str, Any]:
    try:
        said = json.loads(text or "{}")
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise UserError("The parameters of the template cannot be read: start from it again.", code="invalid-parameter")
    return said


def _with_secrets(roles: Mapping[str, RoleSpec], base: Mapping[str, RoleSpec]) -> dict[str, RoleSpec]:
    """Return the roles with the template's values for variables that are empty, as secrets are not shown."""
    found = dict(roles)
    for name in roles.keys() & base.keys():
        environ = roles[name].environ
        filled = {key: text or base[name].environ.get(key, "") for key, text in environ.items()}
        found[name] = replace(roles[name], environ=filled)
    return found


def _secrets_in(version: TemplateVersion, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the locked keys, and the typed values of secret parameters. Raises UserError for a missing one."""
    parts = parts_of(version.document)
    secrets = [one for one in parts.parameters.values() if one.is_secret]
    for one in secrets:
        if not environ.get(one.variable):
            text = Message(
                "Type the value of {name} in the variable {variable}.", name=one.label, variable=one.variable
            )
            raise UserError(text, field="environ", code="missing-parameter")
    return parts.locked, {one.name: environ[one.variable] for one in secrets}


def _without_gaps(part: Mapping[str, Any]) -> dict[str, Any]:
    environ = {name: text for name, text in part.get("environ", {}).items() if text is not None}
    roles = {name: _without_gaps(role) for name, role in part.get("roles", {}).items()}
    return {**part, **({"environ": environ} if environ else {}), **({"roles": roles} if roles else {})}


def _project_id(actor: User, named: str | None) -> str | None:
    """Return the id of the project that a template names, as the form sends it."""
    found = Project.objects.usable_by(actor).filter(name=str(named)).first() if named else None
    return str(found.pk) if found else named


def _image_name(actor: User, named: str) -> str:
    """Return the name of the image that a template names by name, alias or reference."""
    found = Image.objects.usable_by(actor).named(named).values_list("name", flat=True).first() if named else None
    return str(found or named)
