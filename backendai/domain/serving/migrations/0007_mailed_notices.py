from typing import Any

from django.db import migrations, models
from django.utils import timezone


def count_from_now(apps: Any, schema_editor: Any) -> None:
    """When endpoints that never sleep were asked last was not written down: their days without requests begin now."""
    apps.get_model("serving", "Endpoint").objects.filter(minimum__gte=1).update(asked_at=timezone.now())


class Migration(migrations.Migration):
    dependencies = [("serving", "0006_endpoint_notices")]

    operations = [
        migrations.AddField("endpointnotice", "mailed_at", models.DateTimeField(blank=True, null=True)),
        migrations.AlterField(
            "endpointnotice",
            "kind",
            models.CharField(
                choices=[
                    ("unavailable", "unavailable"),
                    ("backing-off", "backing off"),
                    ("rolled-back", "rolled back"),
                    ("unused", "unused"),
                ],
                max_length=16,
            ),
        ),
        migrations.RunPython(count_from_now, migrations.RunPython.noop),
    ]
