from django.db import migrations


def take_inference(apps, schema_editor):
    """Groups that took every type of session take the new one, too."""
    for group in apps.get_model("cluster", "ResourceGroup").objects.all():
        if {"interactive", "batch"} <= set(group.allowed_session_types) and "inference" not in group.allowed_session_types:
            group.allowed_session_types = [*group.allowed_session_types, "inference"]
            group.save(update_fields=["allowed_session_types"])


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0013_capabilities'),
    ]

    operations = [migrations.RunPython(take_inference, migrations.RunPython.noop)]
