"""Templates: lists, creates, changes and deletes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
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
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.templates.bodies import (
    TemplateBody,
    TemplateChange,
    TemplateDetailBody,
    TemplateRequest,
    YAMLRenderer,
)


class TemplateView(ResourceView[Template]):
    """The base of the views of templates."""

    queryset = Template.objects.select_related("owner", "project", "domain", "current")
    serializer_class: type[Any] = TemplateDetailBody
    lookup_url_kwarg = "template_id"
    token_scopes: tuple[Scope, ...] = (Scope.SESSIONS,)


class TemplateList(TemplateView, ListAPIView[Template]):
    """The visible templates; creates one."""

    queryset = TemplateView.queryset.defer("current__document", "current__text")
    serializer_class = TemplateBody
    pagination_class = ByName

    @extend_schema(request=TemplateRequest, responses={201: TemplateDetailBody})
    def post(self, request: Request) -> Response:
        """Create a template; its first version is the current one.

        Errors in a text are reported with line and column.
        """
        said = values_of(TemplateRequest, request.data)
        wish = TemplateDraft(**{name: said[name] for name in TemplateDraft.__dataclass_fields__})
        made = create_template(self.user, wish, written_text(said), note=said["note"], now=timezone.now())
        return Response(TemplateDetailBody(made).data, status=status.HTTP_201_CREATED)


class TemplateDetail(VersionedView, TemplateView):
    """One template."""

    versioned = (Template, "pk")

    renderer_classes = [JSONRenderer, YAMLRenderer]

    def get(self, request: Request, template_id: UUID) -> Response:
        """Return the template with its current document; the YAML format has only the document, as it was written."""
        template = self.get_object()
        if request.accepted_renderer.format == "yaml":
            return Response(template.current.text if template.current else "")
        return self.answer(template)

    @extend_schema(request=TemplateChange)
    def patch(self, request: Request, template_id: UUID) -> Response:
        """Change title, description, icon or deprecation of the template."""
        template = self.get_object()
        values = values_of(TemplateChange, request.data)
        change_template(self.user, template, values, now=timezone.now())
        return self.answer(template)

    def delete(self, request: Request, template_id: UUID) -> Response:
        """Delete the template with its versions; sessions continue."""
        delete_template(self.user, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


def written_text(said: dict[str, Any]) -> str:
    """Return the document of a request as text."""
    return said["text"] if "text" in said else text_of(said["document"])
