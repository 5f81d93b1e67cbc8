from typing import Any

from django.db import migrations, models
from django.db.models import F


def mark_told(apps: Any, editor: Any) -> None:
    """Send no mail about runs that ended before runs were mailed."""
    apps.get_model("pipelines", "Run").objects.exclude(ended_at=None).update(mailed_at=F("ended_at"))


class Migration(migrations.Migration):
    dependencies = [
        ("pipelines", "0004_sealed_secrets"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="mailed_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.RunPython(mark_told, migrations.RunPython.noop, elidable=True),
    ]
