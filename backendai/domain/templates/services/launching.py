"""Launching from a template: which version is meant, and what request it makes with these parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, IntegerField, Value, When

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.core.written_documents import check_extent
from backendai.domain.accounts.models import User
from backendai.domain.cluster.groups.session_defaults import parse_session_defaults
from backendai.domain.compute.services.requests.check import place_of
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.models import Template, TemplateVersion
from backendai.domain.templates.parameters import values_of
from backendai.domain.templates.rendering import CALLER, GROUP, Layer, Rendered, Source, check_locks, filled_in, merged

_REFERENCE = re.compile(r"(?:(private|project|domain|public)/)?([A-Za-z0-9._-]{1,64})(?:@([1-9][0-9]{0,5}))?", re.ASCII)
_NEAREST = Case(
    *(When(scope=scope, then=Value(rank)) for rank, scope in enumerate(Template.Scope.values)),
    output_field=IntegerField(),
)


@dataclass(frozen=True, slots=True)
class FromTemplate:
    """A request made of a template. ``base``: as it is without what the caller says."""

    version: TemplateVersion
    rendered: Rendered
    base: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """The request as a document."""
        return self.rendered.document


def version_named(user: User, reference: str, *, project: str = "") -> TemplateVersion:
    """Return the version that ``scope/name@3``, ``name`` or an id of a template means; without a number the current
    one. The nearest scope is taken. Raises NotFound, and UserError where several projects have one; two queries."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise UserError(
            "{given} is not a valid template: enter scope/name, or scope/name@version.",
            given=repr(reference[:80]),
            field="template",
            code="invalid-template",
        )
    template = _template_named(user, found[1] or "", found[2], project)
    version = template.current
    if found[3]:
        version = template.versions.filter(number=int(found[3])).first()
    if version is None:
        raise NotFound("Template {name} does not have this version.", name=template.name, field="template")
    version.template = template
    return version


def from_template(
    version: TemplateVersion, parameters: Mapping[str, Any], said: Mapping[str, Any], *, secrets: bool = True
) -> FromTemplate:
    """Return the request that a version makes with these parameters and what the caller says beside. ``secrets``
    False: those may be left out, and are None where they belong.

    Raises UserError for a parameter that will not do, and ``locked-by-template``.
    """
    check_extent(said)
    if not version.template.launches_sessions:
        text = Message("Template {name} is a {kind}: start a run of it.", name=str(version), kind=version.template.kind)
        raise UserError(text, field="template", code="other-kind")
    parts, name = parts_of(version.document), str(version)
    values = values_of(parts.parameters, parameters, secrets=secrets)
    layers = filled_in(parts.session, values, name, parts.parameters)
    base = merged(layers).document
    rendered = merged([*layers, Layer(Source(CALLER), said, {})])
    check_locks(parts.locked, base, rendered.document, name)
    kept = {each: value for each, value in values.items() if not parts.parameters[each].is_secret}
    rendered.document.update({"template": name} | ({"parameters": kept} if kept else {}))
    return FromTemplate(version, rendered, base)


def with_group(user: User, made: FromTemplate) -> Rendered:
    """Return the request with what the resource group adds, each field with its source; without it where the place
    cannot be known yet."""
    document, sources = dict(made.document), dict(made.rendered.sources)
    try:
        project, named = (str(document.get(key) or "") for key in ("project", "resource_group"))
        group = place_of(user, project=project, resource_group=named)[1]
    except UserError:
        return Rendered(document, sources)
    usual, source = parse_session_defaults(group.session_defaults), Source(GROUP, group.name)
    for key in ("shm", "priority"):
        if key not in document and (value := getattr(usual, key)):
            document[key], sources[key] = value, source
    environ = document.get("environ", {})
    sources |= {f"environ.{variable}": source for variable in usual.environ if variable not in environ}
    if usual.environ:
        document["environ"] = {**usual.environ, **environ}
    return Rendered(document, dict(sorted(sources.items())))


def caller_part(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without the keys that say of which template it is."""
    return {key: value for key, value in said.items() if key not in ("template", "parameters")}


def _template_named(user: User, scope: str, name: str, project: str) -> Template:
    visible = Template.objects.visible_to(user).select_related("current", "project")
    try:
        rows = visible.filter(pk=UUID(name)) if not scope else visible.filter(scope=scope, name=name)
    except ValueError:
        rows = visible.filter(name=name)
    found = list(rows.annotate(rank=_NEAREST).order_by("rank", "project__name")[:20])
    if user.is_superadmin:  # who sees everybody's means one's own
        found = [one for one in found if one.owner_id in (None, user.pk)] or found
    found = [one for one in found if one.rank == found[0].rank]
    if len(found) > 1 and project:
        found = [one for one in found if one.project and project in (str(one.project_id), one.project.name)] or found
    if not found:
        raise NotFound("Template {name} not found.", name=repr(name), field="template", code="not-found")
    if len(found) > 1:
        text = Message("Several projects have a template {name}: name the project.", name=repr(name))
        raise UserError(text, field="template", code="ambiguous-template")
    return found[0]
