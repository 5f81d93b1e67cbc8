"""*Start from template* for sessions: enters the parameters, shows the launch, and leads to the launcher."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.rendering import CALLER, GROUP, PARAMETER
from backendai.domain.templates.services.launching import from_template, with_group
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.gallery.forms import PREFIX, ParametersForm
from backendai.portal.web.gallery.pages import SECTION, find_template

_NOT_SHOWN = ("template", "parameters")


@signed_in("GET")
def start(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Show the form for the current version's parameters and the launch they give.

    ``?go=launch`` redirects to the launcher.
    """
    found = find_template(request, template_id)
    if found.current is None:
        raise Http404
    if not found.launches_sessions:
        return redirect("web:template_run", found.pk)
    version = found.current
    version.template = found
    parameters = parts_of(version.document).parameters
    given = {name: request.GET[name] for name in request.GET if name.startswith(PREFIX)}
    usual = {f"{PREFIX}{name}": one.default for name, one in parameters.items() if one.default is not None}
    form = ParametersForm(given or None, parameters=parameters, user=request.user, initial=usual)
    is_asked = any(not one.is_secret for one in parameters.values())
    if not is_asked or (given and form.is_valid() and request.GET.get("go") == "launch"):
        answers = form.answers() if is_asked else {}
        return redirect(f"{reverse('web:launch')}?{urlencode({'from': str(found.pk), **answers})}")
    context: dict[str, Any] = {"form": form, "template": found, "version": version} | SECTION
    values = form.values if given and form.is_valid() else {} if not given else None
    if values is not None:
        try:
            kept = {name: value for name, value in values.items() if value not in ("", None)}
            made = with_group(request.user, from_template(version, kept, {}, secrets=False))
            context["rows"] = [
                (path, _shown(made.document, path), _origin(one.kind, one.name))
                for path, one in made.sources.items()
                if path not in _NOT_SHOWN
            ]
        except UserError as error:
            context["missing"] = in_words(error.message)
    secrets = [one.label for one in parameters.values() if one.is_secret]
    return render(request, "web/gallery/start.html", context | {"secrets": secrets})


def _shown(document: Any, path: str) -> str:
    value = document
    while path and isinstance(value, dict | list):
        if isinstance(value, list):
            first, _dot, path = path.partition(".")
            value = value[int(first)]
            continue
        key = next((key for key in value if path == key or path.startswith(f"{key}.")), None)
        if key is None:
            return ""
        value, path = value[key], path[len(key) + 1 :]
    if value is None:
        return _("typed in the launcher")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _origin(kind: str, name: str) -> str:
    match kind:
        case _ if kind == GROUP:
            return _("resource group %(name)s") % {"name": name}
        case _ if kind == PARAMETER:
            return _("parameter %(name)s") % {"name": name}
        case _ if kind == CALLER:
            return _("you")
    return _("template %(name)s") % {"name": name}
