"""Reads a launch request and merges it over its template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request

from backendai.base.core.errors import UserError
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.templates.services.launching import caller_part, from_template, version_named
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.sessions.launch_bodies import LaunchRequest


def spec_asked_for(request: Request) -> SessionSpec:
    """Return the validated launch request, merged over its template if it names one. Two queries for a template."""
    return launch_asked_for(request)[0]


def launch_asked_for(request: Request) -> tuple[SessionSpec, Any]:
    """Return the validated launch request, merged over its template, and its retry rule (None: no retries).

    Two queries for a template.
    """
    said = request.data
    if isinstance(said, Mapping) and said.get("template"):
        parameters = said.get("parameters") or {}
        if not isinstance(parameters, Mapping):
            raise UserError("Write names with their values.", field="parameters", code="invalid")
        version = version_named(user_of(request), str(said["template"]), project=str(said.get("project") or ""))
        said = from_template(version, parameters, caller_part(said)).document
    body = LaunchRequest(data=said)
    body.is_valid(raise_exception=True)
    return body.spec(), body.validated_data["retry"]
