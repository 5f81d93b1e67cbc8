from __future__ import annotations

from typing import Any

from django.db import migrations


def clear_sessions(apps: Any, editor: Any) -> None:
    """Delete commands, variables and logs of people whom an earlier release has purged."""
    purged = {"owner__purged_at__isnull": False}
    of_kernel = {f"session__{name}": value for name, value in purged.items()}
    kernels = apps.get_model("compute", "Kernel").objects.filter(**of_kernel)
    apps.get_model("compute", "KernelLog").objects.filter(kernel__in=kernels).delete()
    apps.get_model("compute", "EarlierLog").objects.filter(kernel__in=kernels).delete()
    kernels.update(environ={}, startup_command="")
    sessions = apps.get_model("compute", "ComputeSession").objects.filter(**purged)
    sessions.update(environ={}, spec={}, startup_command="")


class Migration(migrations.Migration):
    dependencies = [("compute", "0040_earlier_logs")]
    operations = [migrations.RunPython(clear_sessions, migrations.RunPython.noop, elidable=True)]
