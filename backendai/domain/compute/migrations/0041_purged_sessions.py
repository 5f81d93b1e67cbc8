from __future__ import annotations

from typing import Any

from django.db import migrations


def clear_sessions(apps: Any, editor: Any) -> None:
    """Delete commands, variables and logs of people whom an earlier release has purged."""
    purged = apps.get_model("compute", "ComputeSession").objects.filter(owner__purged_at__isnull=False)
    ids = list(purged.values_list("pk", flat=True))
    for start in range(0, len(ids), 200):  # one statement for all could exceed the time limit of statements
        some = ids[start : start + 200]
        kernels = apps.get_model("compute", "Kernel").objects.filter(session__in=some)
        apps.get_model("compute", "KernelLog").objects.filter(kernel__in=kernels).delete()
        apps.get_model("compute", "EarlierLog").objects.filter(kernel__in=kernels).delete()
        kernels.update(environ={}, startup_command="")
        purged.filter(pk__in=some).update(environ={}, spec={}, startup_command="")


class Migration(migrations.Migration):
    dependencies = [("compute", "0040_earlier_logs")]
    operations = [migrations.RunPython(clear_sessions, migrations.RunPython.noop, elidable=True)]
