"""Templates: lists, creates, changes and deletes them."""

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
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import (
    TemplateDraft,
    change_template,
    create_template,
    delete_template,
    text_of,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.yaml_answers import YAMLRenderer
from backendai.portal.api.templates.bodies import TemplateBody, TemplateChange, TemplateDetailBody, TemplateRequest


class TemplateList(ListAPIView[Template]):
    """The visible templates; creates one."""

    queryset = Template.objects.none()
    serializer_class = TemplateBody
    pagination_class = ByName
    filter_backends: list[Any] = []
    token_scopes = (Scope.SESSIONS,)

    def get_queryset(self) -> QuerySet[Template]:
        """Return the visible templates."""
        return templates_of(self.request)

    @extend_schema(request=TemplateRequest, responses={201: TemplateDetailBody})
    def post(self, request: Request) -> Response:
        """Create a template; its first version is the current one.

        Errors in a text are reported with line and column.
        """
        body = TemplateRequest(data=request.data)
        body.is_valid(raise_exception=True)
        said = dict(body.validated_data)
        wish = TemplateDraft(**{name: said[name] for name in TemplateDraft.__dataclass_fields__})
        made = create_template(user_of(request), wish, written_text(said), note=said["note"], now=timezone.now())
        return Response(TemplateDetailBody(made).data, status=status.HTTP_201_CREATED)


class TemplateDetail(GenericAPIView[Template]):
    """One template."""

    queryset = Template.objects.none()
    serializer_class = TemplateDetailBody
    filter_backends: list[Any] = []
    renderer_classes = [JSONRenderer, YAMLRenderer]
    token_scopes = (Scope.SESSIONS,)

    def get(self, request: Request, template_id: UUID) -> Response:
        """Return the template with its current document; the YAML format has only the document, as it was written."""
        template = get_object_or_404(templates_of(request), pk=template_id)
        if request.accepted_renderer.format == "yaml":
            return Response(template.current.text if template.current else "")
        return Response(TemplateDetailBody(template).data)

    @extend_schema(request=TemplateChange)
    def patch(self, request: Request, template_id: UUID) -> Response:
        """Change title, description, icon or deprecation of the template."""
        template = get_object_or_404(templates_of(request), pk=template_id)
        body = TemplateChange(data=request.data)
        body.is_valid(raise_exception=True)
        change_template(user_of(request), template, body.validated_data, now=timezone.now())
        return Response(TemplateDetailBody(template).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, template_id: UUID) -> Response:
        """Delete the template with its versions; sessions continue."""
        delete_template(user_of(request), get_object_or_404(templates_of(request), pk=template_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


def templates_of(request: Request) -> QuerySet[Template]:
    """Return the visible templates with everything that a response contains."""
    visible: QuerySet[Template] = Template.objects.visible_to(user_of(request))
    return visible.select_related("owner", "project", "domain", "current")


def written_text(said: dict[str, Any]) -> str:
    """Return the document of a request as text."""
    return said["text"] if "text" in said else text_of(said["document"])
