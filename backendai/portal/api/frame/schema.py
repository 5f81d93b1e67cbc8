"""Describes bearer tokens and signatures in the OpenAPI document, and writes its messages as YAML."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from yaml.representer import SafeRepresenter

from backendai.base.core.messages import Message
from backendai.domain.pipelines.documents.json_schema import run_schema, template_schema

# Help texts of models are messages. YAML represents strings only, and no kind of them.
SafeRepresenter.add_multi_representer(Message, lambda dumper, text: dumper.represent_str(str.__str__(text)))


class BearerScheme(OpenApiAuthenticationExtension):
    """Describes ``Authorization: Bearer <token>``."""

    target_class = "backendai.portal.api.frame.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme object."""
        return {"type": "http", "scheme": "bearer"}


class SignatureScheme(OpenApiAuthenticationExtension):
    """Describes ``Authorization: BackendAI signMethod=HMAC-SHA256, credential=<access key>:<signature>``."""

    target_class = "backendai.portal.api.frame.authentication.SignatureAuthentication"
    name = "signature"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme object."""
        return {"type": "apiKey", "in": "header", "name": "Authorization", "description": "See docs/rest.md."}


class RunSchema(APIView):
    """The JSON Schema of pipelines and arrays."""

    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        """Return the JSON Schema."""
        return Response(run_schema())


class TemplateSchema(APIView):
    """The JSON Schema of templates."""

    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        """Return the JSON Schema."""
        return Response(template_schema())
