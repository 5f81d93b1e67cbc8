"""Names the operations of the OpenAPI document, and adds to each what all have in common: problems, examples."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from backendai.portal.api.frame.example_answers import ANSWERS
from backendai.portal.api.frame.examples import REQUESTS
from backendai.portal.api.frame.idempotency import takes_key

_VERBS = {"POST": "create", "PUT": "put", "PATCH": "update", "DELETE": "delete"}
_READ_AS = {  # addresses that begin with another word than the thing that they are about
    "check-presets": "presets/check",
    "endpoint-preview": "endpoints/preview",
    "run-preview": "runs/preview",
    "run-schema": "runs/schema",
    "session-preview": "sessions/preview",
    "sessions/terminate": "sessions/terminate-many",
    "template-schema": "templates/schema",
}
_ONE_THING = frozenset({"limits", "logs", "notifications", "owners", "settings", "site-settings", "statistics"})
_MANY_THINGS = frozenset({"history", "queue", "trash"})
_METHODS = {"get", "post", "put", "patch", "delete"}
_IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag as read; 412 if it is another now.",
)
_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="A name of yours for this request: sent again, it has no second effect. 422 with another body.",
)
_TEXT = {"type": "string"}
_FIELD = {"type": "string", "description": "The field of the request, with dots: resources.cpu."}
_PROBLEM = {
    "type": "object",
    "description": "Why a request was refused or failed (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "description": "Always about:blank: code says which."},
        "title": _TEXT | {"description": "The name of the status."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": _TEXT | {"description": "What is wrong, what is allowed, what to do; in the caller's language."},
        "code": {"type": "string", "pattern": "^[a-z0-9-]+$", "description": "The kind of problem, for programs."},
        "error": _TEXT | {"description": "Of a device code: its error in RFC 8628, such as authorization_pending."},
        "field": _FIELD,
        "errors": {
            "type": "array",
            "description": "All fields that are wrong, at most 20.",
            "items": {
                "type": "object",
                "required": ["field", "code", "detail"],
                "properties": {"field": _FIELD, "code": _TEXT, "detail": _TEXT},
            },
        },
        "data": {"type": "object", "additionalProperties": {}, "description": "The values in detail, by name."},
        "id": _TEXT | {"description": "Of a fault of the platform: the request under which its log has the reason."},
    },
}


def operation_id(path: str, method: str) -> str:
    """Return the words of the address with dots and what the method does: ``sessions.apps.list``.

    The last word of an address that is posted to says itself what it does, unless it names a collection.
    """
    parts = _parts_of(path)
    words = [part.replace("-", "_") for part in parts if not part.startswith("{")]
    last = parts[-1]
    if method == "POST" and len(words) > 1 and not last.startswith("{") and not _is_collection(last):
        return ".".join(words)
    verb = _VERBS.get(method) or ("list" if _is_collection(last) else "get")
    return ".".join([*words, verb])


def _parts_of(path: str) -> list[str]:
    address = re.sub("^/api/(v1/)?", "", path).strip("/")
    address = address.replace("/trash/{item}", "/trash/items/{item}")  # deleting one item is not emptying the trash
    return _READ_AS.get(address, address).split("/")


def _is_collection(word: str) -> bool:
    return word in _MANY_THINGS or (word.endswith("s") and word not in _ONE_THING)


class Operation(AutoSchema):
    """Describes one operation: its ID, its tag and a summary."""

    def get_operation_id(self) -> str:
        """Return the ID, which stays the same while address and method do."""
        return operation_id(self.path, self.method)

    def get_tags(self) -> list[str]:
        """Return the resource to which the operation belongs."""
        return [_parts_of(self.path)[0]]

    def get_summary(self) -> str:
        """Return the first clause of the docstring."""
        text = " ".join(self.get_description().split()).replace("``", "")
        return re.split(r"[.;:](?: |$)", text)[0]

    def get_override_parameters(self) -> list[Any]:
        """Return the parameters that the view has, the version that a change may name, and the key of a POST."""
        found = list(super().get_override_parameters())
        if self.method == "PATCH" and getattr(self.view, "is_versioned", False):
            found.append(_IF_MATCH)
        if self.method == "POST" and takes_key(self.view):
            found.append(_KEY)
        return found

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """Return the name of the class without the ending that drf-spectacular adds to requests."""
        name = super().get_serializer_name(serializer, direction)
        return name.removesuffix("Request") if direction == "request" else name


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the document with the problem as the default answer of each operation."""
    parts = result["components"]
    parts["schemas"]["Problem"] = _PROBLEM
    body = {"schema": {"$ref": "#/components/schemas/Problem"}}
    parts["responses"] = {
        "Problem": {"description": _PROBLEM["description"], "content": {"application/problem+json": body}}
    }
    for item in result["paths"].values():
        for method in _METHODS & item.keys():
            item[method]["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    return result


def drop_defaults(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the document without defaults in changes, where omitted fields stay as they are."""
    for name, schema in result["components"]["schemas"].items():
        if name.startswith("Patched"):
            for field in schema["properties"].values():
                field.pop("default", None)
    return result


def add_examples(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the document with an example in each body of a request and the main answers."""
    schemas = result["components"]["schemas"]
    for name, example in (REQUESTS | ANSWERS).items():
        schemas[name] = schemas[name] | {"example": example}
    return result
