from __future__ import annotations

from typing import Any

from django.db import migrations

from backendai.core.errors import UserError
from backendai.core.written_documents import read_document, written
from backendai.pipelines.documents import LARGEST, MOST_VALUES
from backendai.pipelines.keeping import with_files
from backendai.pipelines.sealing import sealed_request


def seal_files(apps: Any, editor: Any) -> None:
    """Seal the contents of files of steps of earlier releases, and leave them out of the documents of their runs."""
    runs = set()
    for step in apps.get_model("pipelines", "Step").objects.filter(request__has_key="files").iterator(chunk_size=100):
        step.request, secrets = sealed_request(step.request)
        step.secrets = {**step.secrets, **secrets}
        step.save(update_fields=["request", "secrets"])
        runs.add(step.run_id)
    for run in apps.get_model("pipelines", "Run").objects.filter(pk__in=runs).iterator(chunk_size=100):
        try:
            kept = with_files(read_document(run.text, largest=LARGEST, most=MOST_VALUES).value, {})
        except UserError:
            continue  # a document of an earlier release that is not read any more
        run.text = written(kept)
        run.save(update_fields=["text"])


class Migration(migrations.Migration):
    dependencies = [("pipelines", "0005_mailed_runs")]
    operations = [migrations.RunPython(seal_files, migrations.RunPython.noop, elidable=True)]
