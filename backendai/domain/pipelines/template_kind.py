"""Pipelines as templates: their documents are those of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.domain.pipelines.documents.document import FINALLY, KIND, LARGEST, MOST_VALUES, run_document
from backendai.domain.templates.documents import check_secrets, samples_of
from backendai.domain.templates.kinds import TemplateKind, register_kind
from backendai.domain.templates.parameters import parameters_of


def check_pipeline(said: Mapping[str, Any]) -> None:
    """Raise a UserError that names the key for a document of which no run could be made."""
    run_document(said, samples_of(parameters_of(said.get("params"))))
    parts = {"defaults.": said.get("defaults"), f"{FINALLY}.": said.get(FINALLY)}
    parts |= {f"steps.{name}.": step for name, step in said["steps"].items()}
    for prefix, part in parts.items():
        if part:
            check_secrets(part, prefix)


register_kind(TemplateKind(KIND, check_pipeline, LARGEST, MOST_VALUES, mark="steps"))
