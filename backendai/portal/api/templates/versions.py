"""Versions of templates: lists, publishes, activates and renders them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.templates.models import TemplateVersion
from backendai.domain.templates.services.launching import from_template, with_group
from backendai.domain.templates.services.publishing import activate_version, publish_version
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.yaml_answers import YAMLRenderer
from backendai.portal.api.templates.bodies import (
    ActivateRequest,
    RenderedBody,
    RenderRequest,
    TemplateDetailBody,
    VersionBody,
    VersionDetailBody,
    WrittenRequest,
    rendered_body,
)
from backendai.portal.api.templates.views import templates_of, written_text


class ByNumber(NewestFirst):
    """Pages as of ``NewestFirst``, with the newest version first."""

    ordering = "-number"


class TemplateVersions(ListAPIView[TemplateVersion]):
    """The versions of a template; publishes one."""

    queryset = TemplateVersion.objects.none()
    serializer_class = VersionBody
    pagination_class = ByNumber
    filter_backends: list[Any] = []
    token_scopes = (Scope.SESSIONS,)

    def get_queryset(self) -> QuerySet[TemplateVersion]:
        """Return the versions of a visible template."""
        if getattr(self, "swagger_fake_view", False):
            return TemplateVersion.objects.none()
        template = get_object_or_404(templates_of(self.request), pk=self.kwargs["template_id"])
        return template.versions.select_related("author")

    @extend_schema(request=WrittenRequest, responses={201: VersionDetailBody})
    def post(self, request: Request, template_id: UUID) -> Response:
        """Publish a version. New launches use the current one until this one is activated."""
        template = get_object_or_404(templates_of(request), pk=template_id)
        body = WrittenRequest(data=request.data)
        body.is_valid(raise_exception=True)
        said = dict(body.validated_data)
        version = publish_version(user_of(request), template, written_text(said), note=said["note"], now=timezone.now())
        return Response(VersionDetailBody(version).data, status=status.HTTP_201_CREATED)


class TemplateVersionDetail(GenericAPIView[TemplateVersion]):
    """One version."""

    queryset = TemplateVersion.objects.none()
    serializer_class = VersionDetailBody
    filter_backends: list[Any] = []
    renderer_classes = [JSONRenderer, YAMLRenderer]

    def get(self, request: Request, template_id: UUID, number: int) -> Response:
        """Return the version; the YAML format has only the document, as it was written."""
        template = get_object_or_404(templates_of(request), pk=template_id)
        version = get_object_or_404(template.versions.select_related("author"), number=number)
        if request.accepted_renderer.format == "yaml":
            return Response(version.text)
        return Response(VersionDetailBody(version).data)


class TemplateActivate(GenericAPIView[Any]):
    """The current version of a template."""

    serializer_class = TemplateDetailBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=ActivateRequest, responses=TemplateDetailBody)
    def post(self, request: Request, template_id: UUID) -> Response:
        """Activate a version; running sessions are not affected."""
        template = get_object_or_404(templates_of(request), pk=template_id)
        body = ActivateRequest(data=request.data)
        body.is_valid(raise_exception=True)
        activate_version(user_of(request), template, body.validated_data["version"], now=timezone.now())
        return Response(TemplateDetailBody(get_object_or_404(templates_of(request), pk=template_id)).data)


class TemplateRender(GenericAPIView[Any]):
    """Rendering a launch request from a template."""

    serializer_class = RenderedBody
    token_scopes = (Scope.READ,)  # it changes nothing
    filter_backends: list[Any] = []

    @extend_schema(request=RenderRequest, responses=RenderedBody)
    def post(self, request: Request, template_id: UUID) -> Response:
        """Return the launch request with the source of each field, including the resource group's defaults."""
        template = get_object_or_404(templates_of(request), pk=template_id)
        body = RenderRequest(data=request.data)
        body.is_valid(raise_exception=True)
        said = body.validated_data
        numbers = {"number": said["version"]} if "version" in said else {"pk": template.current_id}
        version = get_object_or_404(template.versions.all(), **numbers)
        version.template = template
        made = from_template(version, said["parameters"], said["request"], secrets=False)
        return Response(rendered_body(str(version), with_group(user_of(request), made)))
