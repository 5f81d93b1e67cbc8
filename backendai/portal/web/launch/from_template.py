"""Fills the launch form from a template with parameters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import QueryDict

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.compute.models.sessions import LaunchRecord
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.services.launching import from_template, version_named
from backendai.portal.web.launch.refill import Refill, refill_of

FROM, PREFIX = "from", "p."


def template_refill(query: QueryDict, actor: User) -> Refill:
    """Return the initial values for ``?from=`` and ``?p.NAME=``.

    Raises NotFound for a template that is not visible, and UserError for an invalid parameter.
    """
    given = {name.removeprefix(PREFIX): query[name] for name in query if name.startswith(PREFIX)}
    version = version_named(actor, query.get(FROM, ""))
    made = from_template(version, given, {}, secrets=False)
    parts = parts_of(version.document)
    secrets = [one for one in parts.parameters.values() if one.is_secret]
    document = _project(_as_typed(made.document, {one.variable for one in secrets}), actor)
    record = LaunchRecord(owner=actor, name=str(version), parameters=document)
    refill = refill_of(record, actor)
    refill.notes[:] = [
        _("Type the value of %(name)s in the variable %(variable)s.") % {"name": one.label, "variable": one.variable}
        for one in secrets
    ]
    refill.initial["template"] = f"{version.template_id}@{version.number}"
    return Refill(
        record, refill.owner, refill.initial, refill.gone, refill.notes, is_template=True, locked=parts.locked
    )


def _as_typed(document: dict[str, Any], secret: set[str]) -> dict[str, Any]:
    """Return the document without values for variables of secret parameters, which the user types."""
    environ = {name: text for name, text in document.get("environ", {}).items() if text is not None or name in secret}
    return {**document, "environ": environ}


def _project(document: dict[str, Any], actor: User) -> dict[str, Any]:
    """Return the document with the id of its project, as the form needs it."""
    named = str(document.get("project") or "")
    try:
        UUID(named)
    except ValueError:
        found = Project.objects.usable_by(actor).filter(name=named).first() if named else None
        document = {key: value for key, value in document.items() if key != "project"}
        document |= {"project": str(found.pk)} if found else {}
    return document
