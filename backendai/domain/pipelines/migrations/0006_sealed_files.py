from __future__ import annotations

from typing import Any

from django.db import migrations

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import written
from backendai.domain.pipelines.documents.stored import kept_document, with_files
from backendai.domain.pipelines.documents.secrets import sealed_request


def seal_files(apps: Any, editor: Any) -> None:
    """Seal the contents of files of steps of earlier releases, and leave them out of the documents of their runs."""
    runs = set()
    for step in apps.get_model("pipelines", "Step").objects.filter(request__has_key="files").iterator(chunk_size=100):
        step.request, secrets = sealed_request(step.request)
        step.secrets = {**step.secrets, **secrets}
        step.save(update_fields=["request", "secrets"])
        runs.add(step.run_id)
    for run in apps.get_model("pipelines", "Run").objects.filter(pk__in=runs).iterator(chunk_size=100):
        kept = _without_files(run.text)
        if kept != run.text:
            run.text = kept
            run.save(update_fields=["text"])


def _without_files(text: str) -> str:
    """Return the document without contents of files; empty where it cannot be read, for it may have some."""
    try:
        said = kept_document(text)
    except UserError:
        return ""
    kept = with_files(said, {})
    return text if kept == said else written(kept)


class Migration(migrations.Migration):
    dependencies = [("pipelines", "0005_mailed_runs")]
    operations = [migrations.RunPython(seal_files, migrations.RunPython.noop, elidable=True)]
