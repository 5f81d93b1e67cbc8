"""Versions of templates: lists, publishes, activates and renders them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.templates.models import TemplateVersion
from backendai.domain.templates.services.launching import from_template, with_group
from backendai.domain.templates.services.publishing import activate_version, publish_version
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.views import PartView
from backendai.portal.api.templates.bodies import (
    ActivateRequest,
    RenderedBody,
    RenderRequest,
    TemplateDetailBody,
    VersionBody,
    VersionDetailBody,
    WrittenRequest,
    YAMLRenderer,
    rendered_body,
)
from backendai.portal.api.templates.views import TemplateView, written_text


class ByNumber(NewestFirst):
    """Pages as of ``NewestFirst``, with the newest version first."""

    ordering = "-number"


class VersionView(PartView[TemplateVersion]):
    """The base of the views of a template's versions."""

    owner_view = TemplateView
    owner_field = "template"
    queryset = TemplateVersion.objects.select_related("author")
    serializer_class: type[Any] = VersionDetailBody
    lookup_field = "number"
    token_scopes = (Scope.SESSIONS,)


class TemplateVersions(VersionView, ListAPIView[TemplateVersion]):
    """The versions of a template; publishes one."""

    serializer_class = VersionBody
    pagination_class = ByNumber

    @extend_schema(request=WrittenRequest, responses={201: VersionDetailBody})
    def post(self, request: Request, template_id: UUID) -> Response:
        """Publish a version. New launches use the current one until this one is activated."""
        template, said = self.owner(), values_of(WrittenRequest, request.data)
        version = publish_version(self.user, template, written_text(said), note=said["note"], now=timezone.now())
        return Response(VersionDetailBody(version).data, status=status.HTTP_201_CREATED)


class TemplateVersionDetail(VersionView):
    """One version."""

    renderer_classes = [JSONRenderer, YAMLRenderer]

    def get(self, request: Request, template_id: UUID, number: int) -> Response:
        """Return the version; the YAML format has only the document, as it was written."""
        version = self.get_object()
        return Response(version.text) if request.accepted_renderer.format == "yaml" else self.answer(version)


class TemplateActivate(TemplateView):
    """The current version of a template."""

    @extend_schema(request=ActivateRequest, responses=TemplateDetailBody)
    def post(self, request: Request, template_id: UUID) -> Response:
        """Activate a version; running sessions are not affected."""
        template, values = self.get_object(), values_of(ActivateRequest, request.data)
        activate_version(self.user, template, values["version"], now=timezone.now())
        return self.answer(self.get_object())


class TemplateRender(TemplateView):
    """Rendering a launch request from a template."""

    serializer_class = RenderedBody
    token_scopes = (Scope.READ,)  # it changes nothing

    @extend_schema(request=RenderRequest, responses=RenderedBody)
    def post(self, request: Request, template_id: UUID) -> Response:
        """Return the launch request with the source of each field, including the resource group's defaults."""
        template, said = self.get_object(), values_of(RenderRequest, request.data)
        numbers = {"number": said["version"]} if "version" in said else {"pk": template.current_id}
        version = get_object_or_404(template.versions.all(), **numbers)
        version.template = template
        made = from_template(version, said["parameters"], said["request"], secrets=False)
        return Response(rendered_body(str(version), with_group(self.user, made)))
