"""The document of a run as a copy of it begins, or a template."""

from __future__ import annotations

from contextlib import suppress

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import written
from backendai.domain.pipelines.documents.secrets import opened_files
from backendai.domain.pipelines.documents.stored import kept_document, with_files, with_secret_parameters
from backendai.domain.pipelines.models import Run


def copied_text(run: Run) -> str:
    """Return the run's document with its files, and with a parameter for each secret, also where an earlier release
    kept null for it. A document that cannot be read is returned as it is: its form says why."""
    try:
        said = kept_document(run.text)
    except UserError:
        return run.text
    found = with_secret_parameters(said) if run.kind == Run.Kind.PIPELINE else said
    found = with_files(found, _files_of(run))
    return run.text if found == said else written(found)


def _files_of(run: Run) -> dict[str, list[str]]:
    """Return by step the contents of its files in their order, without those that cannot be opened any more."""
    found = {}
    for step in run.steps.filter(request__has_key="files"):
        with suppress(UserError):
            found[step.name] = [one["content"] for one in opened_files(step.request, step.secrets)["files"]]
    return found
