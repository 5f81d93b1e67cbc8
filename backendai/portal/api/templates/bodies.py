"""Bodies of requests and answers about templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer

from backendai.base.core.written_documents import written
from backendai.domain.pipelines.documents.document import LARGEST as MOST_CHARACTERS
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.models import ICONS, Template, TemplateVersion
from backendai.domain.templates.parameters import TYPES
from backendai.domain.templates.rendering import CALLER, GROUP, PARAMETER, TEMPLATE, Rendered
from backendai.portal.api.frame.parsing import StrictSerializer


class TemplateBody(serializers.ModelSerializer[Template]):
    """A template; ``current`` is the version for launches that name no version."""

    project = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    domain = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    owner = serializers.SlugRelatedField[Any](slug_field="email", read_only=True, allow_null=True)
    current = serializers.SlugRelatedField[Any](slug_field="number", read_only=True, allow_null=True)

    class Meta:
        model = Template
        fields = [
            "id",
            "scope",
            "kind",
            "name",
            "project",
            "domain",
            "owner",
            "title",
            "description",
            "icon",
            "current",
            "deprecated",
            "created_at",
            "updated_at",
        ]
        read_only_fields = fields


class VersionBody(serializers.ModelSerializer[TemplateVersion]):
    """A version of a template, which never changes."""

    author = serializers.SlugRelatedField[Any](slug_field="email", read_only=True, allow_null=True)

    class Meta:
        model = TemplateVersion
        fields = ["number", "note", "digest", "author", "created_at"]
        read_only_fields = fields


class VersionDetailBody(VersionBody):
    """A version with its document."""

    document = serializers.DictField(read_only=True)

    class Meta(VersionBody.Meta):
        fields = [*VersionBody.Meta.fields, "document", "text"]
        read_only_fields = fields


class WrittenRequest(StrictSerializer):
    """A template's document, as text or as an object."""

    text = serializers.CharField(
        max_length=MOST_CHARACTERS,
        required=False,
        trim_whitespace=False,
        help_text="YAML or JSON, at most 64 KiB; of a pipeline 256 KiB.",
    )
    document = serializers.DictField(child=serializers.JSONField(allow_null=True), required=False)
    note = serializers.CharField(max_length=255, default="", allow_blank=True, help_text="A description of the change.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values. Raises ValidationError unless exactly one of text and document is given."""
        if ("text" in attrs) == ("document" in attrs):
            raise serializers.ValidationError({"text": "Write either text or document."}, "required")
        return attrs


class TemplateRequest(WrittenRequest):
    """A new template."""

    name = serializers.CharField(max_length=64)
    scope = serializers.ChoiceField(choices=Template.Scope.choices, default=Template.Scope.PRIVATE.value)
    project = serializers.CharField(
        max_length=64, default="", allow_blank=True, help_text="For scope project: ID or name."
    )
    title = serializers.CharField(max_length=128, default="", allow_blank=True)
    description = serializers.CharField(max_length=500, default="", allow_blank=True)
    icon = serializers.ChoiceField(choices=ICONS, default=ICONS[0])


class TemplateChange(StrictSerializer):
    """Changes of a template's title, description, icon or deprecation reason. Its versions stay unchanged."""

    title = serializers.CharField(max_length=128, required=False, allow_blank=True)
    description = serializers.CharField(max_length=500, required=False, allow_blank=True)
    icon = serializers.ChoiceField(choices=ICONS, required=False)
    deprecated = serializers.CharField(
        max_length=255, required=False, allow_blank=True, help_text="Reason of the deprecation."
    )


class ActivateRequest(StrictSerializer):
    """The version to activate."""

    version = serializers.IntegerField(min_value=1)


class RenderRequest(StrictSerializer):
    """The parameters, and the other fields of a launch request."""

    version = serializers.IntegerField(min_value=1, required=False, help_text="Left out: the current one.")
    parameters = serializers.DictField(child=serializers.JSONField(), default=dict)
    request = serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        default=dict,
        help_text="Values that override the template, as for a launch.",
    )


class SourceBody(serializers.Serializer[Any]):
    """The source of a value. ``name``: the template with its version, the parameters, or the resource group."""

    path = serializers.CharField()
    origin = serializers.ChoiceField(choices=[GROUP, TEMPLATE, PARAMETER, CALLER])
    name = serializers.CharField(allow_blank=True)


class RenderedBody(serializers.Serializer[Any]):
    """The rendered launch request, and the source of each of its fields."""

    template = serializers.CharField()
    document = serializers.DictField(child=serializers.JSONField())
    sources = SourceBody(many=True)


class ParameterBody(serializers.Serializer[Any]):
    """One parameter of a template."""

    name = serializers.CharField()
    type = serializers.ChoiceField(choices=TYPES)
    title = serializers.CharField(allow_blank=True)
    help = serializers.CharField(allow_blank=True)
    default = serializers.JSONField(allow_null=True, help_text="null: a value is required.")
    choices = serializers.ListField(child=serializers.CharField())
    min = serializers.FloatField(allow_null=True)
    max = serializers.FloatField(allow_null=True)
    step = serializers.FloatField(allow_null=True)
    format = serializers.CharField(allow_blank=True)
    show_if = serializers.DictField(child=serializers.JSONField())
    advanced = serializers.BooleanField()
    variable = serializers.CharField(help_text="The environment variable with its value.")


class TemplateDetailBody(TemplateBody):
    """A template with the parameters of its current version."""

    parameters = serializers.SerializerMethodField()
    locked = serializers.SerializerMethodField()
    document = serializers.DictField(source="current.document", default=dict, read_only=True)

    class Meta(TemplateBody.Meta):
        fields = [*TemplateBody.Meta.fields, "parameters", "locked", "document"]
        read_only_fields = fields

    @extend_schema_field(ParameterBody(many=True))
    def get_parameters(self, template: Template) -> Any:
        """Return the parameters of the current version."""
        return ParameterBody(parts_of(_document(template)).parameters.values(), many=True).data

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_locked(self, template: Template) -> list[str]:
        """Return the keys that a launch may not change."""
        return parts_of(_document(template)).locked


def rendered_body(template: str, rendered: Rendered) -> dict[str, Any]:
    """Return a rendered launch request and its sources as JSON values."""
    sources = [{"path": path, "origin": one.kind, "name": one.name} for path, one in rendered.sources.items()]
    return {"template": template, "document": rendered.document, "sources": sources}


def _document(template: Template) -> dict[str, Any]:
    return template.current.document if template.current else {}


class YAMLRenderer(BaseRenderer):
    """Answers in YAML, requested by ``?format=yaml`` or the header Accept: a text unchanged, other data in blocks."""

    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return the answer as bytes of YAML."""
        if isinstance(data, Mapping):
            data = written(json.loads(JSONRenderer().render(data)))  # YAML has no ids and lazy texts
        return data.encode() if isinstance(data, str) else b""
