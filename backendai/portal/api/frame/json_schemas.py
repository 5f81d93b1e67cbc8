"""JSON Schemas of the documents that people write, for their editors."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backendai.domain.pipelines.documents.json_schema import run_schema, template_schema


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
