"""Kinds of templates. A room above adds its kind by a function in its module ``template_kind``; Django imports these
modules at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import LARGEST, MOST_VALUES
from backendai.domain.templates.documents import template_document
from backendai.domain.templates.models import SESSION


@dataclass(frozen=True, slots=True)
class TemplateKind:
    """``check`` raises a UserError for a document that nothing can be launched of; ``mark``: a key that only documents
    of this kind have."""

    name: str
    check: Callable[[Mapping[str, Any]], object]
    largest: int = LARGEST
    most_values: int = MOST_VALUES
    mark: str = ""


_registered: dict[str, TemplateKind] = {SESSION: TemplateKind(SESSION, template_document)}


def register_kind(kind: TemplateKind) -> None:
    """Accept templates of this kind from now on."""
    _registered[kind.name] = kind


def kind_of(said: Mapping[str, Any]) -> TemplateKind:
    """Return the kind of a document: as it says, else by a key that only one kind has. Raises a UserError for a kind
    that there is not."""
    if "kind" not in said:
        return next((one for one in _registered.values() if one.mark and one.mark in said), _registered[SESSION])
    found = _registered.get(str(said["kind"]))
    if found is None:
        kinds = ", ".join(_registered)
        raise UserError(
            "A template has one of these kinds: {kinds}.", kinds=kinds, field="kind", code="invalid-document"
        )
    return found


def largest_limits() -> tuple[int, int]:
    """Return the size and the number of values that no document of a template exceeds."""
    kinds = _registered.values()
    return max(one.largest for one in kinds), max(one.most_values for one in kinds)
