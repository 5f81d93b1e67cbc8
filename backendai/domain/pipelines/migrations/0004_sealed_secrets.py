from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from backendai.domain.pipelines.documents.secrets import sealed_request, without_values


def seal_secrets(apps: Any, editor: Any) -> None:
    """Seal the secrets of steps of earlier releases; those of runs that launch nothing any more are deleted."""
    for step in apps.get_model("pipelines", "Step").objects.select_related("run").iterator(chunk_size=500):
        request, secrets = sealed_request(step.request)
        if secrets:
            step.request = request
            step.secrets = without_values(secrets) if step.run.status == "SUCCEEDED" else secrets
            step.save(update_fields=["request", "secrets"])


class Migration(migrations.Migration):
    dependencies = [
        ("pipelines", "0003_growths"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(model_name="step", name="secrets", field=models.JSONField(default=dict, editable=False)),
        migrations.AlterField(
            model_name="step",
            name="request",
            field=models.JSONField(editable=False, help_text="The launch request of its elements, without secrets."),
        ),
        migrations.AlterField(
            model_name="run",
            name="owner",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="runs",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunPython(seal_secrets, migrations.RunPython.noop, elidable=True),
    ]
