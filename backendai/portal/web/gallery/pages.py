"""The gallery of templates, and the page of a template."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render

from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.pipelines.documents.document import KIND
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.models import SESSION, Template
from backendai.domain.templates.services.publishing import may_change
from backendai.portal.web.frame.requests import PageRequest, signed_in

SECTION = {"section": "templates"}
KINDS = {SESSION: _("a session"), KIND: _("a pipeline")}
_MOST_SHOWN, _MOST_VERSIONS = 200, 50


@signed_in("GET")
def templates(request: PageRequest) -> HttpResponse:
    """Show the visible templates, deprecated ones last; two queries."""
    sought, scope, kind = (
        request.GET.get("q", "").strip()[:64],
        request.GET.get("scope", ""),
        request.GET.get("kind", ""),
    )
    rows = Template.objects.visible_to(request.user).select_related("owner", "project", "domain", "current")
    rows = rows.defer("current__document", "current__text")
    if sought:
        rows = rows.filter(Q(name__icontains=sought) | Q(title__icontains=sought) | Q(description__icontains=sought))
    if scope in Template.Scope.values:
        rows = rows.filter(scope=scope)
    if kind in KINDS:
        rows = rows.filter(kind=kind)
    found = sorted(rows.order_by("name", "pk")[:_MOST_SHOWN], key=lambda one: (bool(one.deprecated), one.label.lower()))
    context: dict[str, Any] = {"templates": found, "sought": sought, "scope": scope, "scopes": Template.Scope.choices}
    context |= {"kind": kind, "kinds": KINDS.items(), "is_narrowed": bool(sought or scope or kind)}
    return render(request, "web/gallery/list.html", context | SECTION)


@signed_in("GET")
def template(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Show a template with its versions; ``?version=`` shows another version's document."""
    return template_page(request, find_template(request, template_id))


def find_template(request: PageRequest, template_id: UUID, *, to_change: bool = False) -> Template:
    """Return a template that the user may see, or with ``to_change`` may change; else 404."""
    rows = Template.objects
    mine = rows.changeable_by(request.user) if to_change else rows.visible_to(request.user)
    found: Template = get_object_or_404(mine.select_related("owner", "project", "domain", "current"), pk=template_id)
    return found


def template_page(request: PageRequest, found: Template, *, status: int = 200, refusal: str = "") -> HttpResponse:
    """Return the page of a template; ``refusal`` is the error of a rejected action."""
    versions = list(found.versions.select_related("author").defer("document")[:_MOST_VERSIONS])
    wanted = request.GET.get("version", "")
    shown = next((one for one in versions if str(one.number) == wanted), None)
    shown = shown or next((one for one in versions if one.pk == found.current_id), None)
    parts = parts_of(shown.document) if shown else None
    context = {
        "template": found,
        "versions": versions,
        "shown": shown,
        "parameters": parts.parameters.values() if parts else (),
        "locked": parts.locked if parts else (),
        "may_change": may_change(request.user, found),
        "refusal": refusal,
    }
    return render(request, "web/gallery/template.html", context | SECTION, status=status)
