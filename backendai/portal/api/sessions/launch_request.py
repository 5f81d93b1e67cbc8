"""The body of a launch request: read by the annotations of ``SessionSpec``, which are also its JSON Schema.

Its names are a contract: add, never rename.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.fields import Field
from rest_framework.request import Request

from backendai.base.core.errors import UserError
from backendai.domain.compute.services.requests.roles import MAIN
from backendai.domain.compute.spec import Mounts, SessionSpec
from backendai.domain.compute.spec_document import KEYS, READER, VERSION, faults_of, schema_of_requests, upgraded
from backendai.domain.templates.services.launching import caller_part, from_template, version_named
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import refuse_unknown

_COMPONENT = "#/components/schemas/{model}"
_RETRY = "Batch: how often a command that fails is launched again, as a number or the retry of a run's step."


class LaunchRequest:
    """A launch request; omitted fields get their default."""


class LaunchRequestSchema(OpenApiSerializerExtension):
    """Publishes the fields of ``SessionSpec`` in the OpenAPI document."""

    target_class = LaunchRequest

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        """Return the name of the component, to which drf-spectacular adds what it is."""
        return LaunchRequest.__name__.removesuffix("Request")

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the schema, and register its parts as components of their own."""
        keys, parts = schema_of_requests(_COMPONENT)
        for name, part in parts.items():
            component = ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=_nullable(part))
            auto_schema.registry.register_on_missing(component)
        more = {
            "version": {"type": "integer", "enum": [VERSION], "description": "Of the document."},
            "retry": {"nullable": True, "description": _RETRY},
        }
        return {"type": "object", "description": LaunchRequest.__doc__, "properties": _nullable(keys) | more}


@extend_schema_field({"type": "array", "items": {"$ref": _COMPONENT.format(model="MountRequest")}})
class MountsField(Field[Any, Any, Any, Any]):
    """Folders to mount."""

    _reader = pydantic.TypeAdapter[Any](Mounts)

    def to_internal_value(self, data: Any) -> Any:
        """Return the requests for mounts. Raises ValidationError."""
        return _read(self._reader, data)


def spec_asked_for(request: Request) -> SessionSpec:
    """Return the validated launch request, merged over its template if it names one. Two queries for a template."""
    return launch_asked_for(request)[0]


def launch_asked_for(request: Request) -> tuple[SessionSpec, Any]:
    """Return the validated launch request, merged over its template, and its retry rule (None: no retries).

    Two queries for a template. Raises ValidationError that names every wrong field.
    """
    values = request.data
    if not isinstance(values, Mapping):
        raise ValidationError("Write names with their values.")
    if template := values.get("template"):
        parameters = values.get("parameters") or {}
        if not isinstance(parameters, Mapping):
            raise UserError("Write names with their values.", field="parameters", code="invalid")
        version = version_named(user_of(request), str(template), project=str(values.get("project") or ""))
        values = from_template(version, parameters, caller_part(values)).document
    refuse_unknown(values, {*KEYS, "version", "retry"})
    values = upgraded({"version": VERSION, "image": "", **values})
    retry = values.pop("retry", None)
    del values["version"]
    spec: SessionSpec = _read(READER, values)
    main = spec.roles.get(MAIN)
    if not spec.image and not (main and main.image):
        raise ValidationError({"image": "Write an image, or a template that has one."}, "required")
    if spec.parameters and not spec.template:
        raise ValidationError({"parameters": "Only a template has parameters: name it."}, "invalid")
    return spec, retry


def _read(reader: pydantic.TypeAdapter[Any], values: Any) -> Any:
    try:
        return reader.validate_python(values)
    except pydantic.ValidationError as error:
        faults = faults_of(error)
    raise ValidationError({fault.field: ErrorDetail(fault.text, fault.code) for fault in faults})


def _nullable(schema: Any) -> Any:
    """Return the schema as OpenAPI 3.0 writes it, which has no type for null."""
    if isinstance(schema, list):
        return [_nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kinds = schema.get("anyOf", [])
    if {"type": "null"} not in kinds:
        return {key: _nullable(one) for key, one in schema.items()}
    rest = [_nullable(one) for one in kinds if one != {"type": "null"}]
    more = {key: one for key, one in schema.items() if key != "anyOf"}
    return (rest[0] if len(rest) == 1 else {"anyOf": rest}) | more | {"nullable": True}
