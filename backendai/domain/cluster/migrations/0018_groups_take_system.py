from django.db import migrations


def take_system(apps, schema_editor):
    """Groups that took every type of session take the new one, too."""
    for group in apps.get_model("cluster", "ResourceGroup").objects.all():
        types = group.allowed_session_types
        if {"interactive", "batch", "inference"} <= set(types) and "system" not in types:
            group.allowed_session_types = [*types, "system"]
            group.save(update_fields=["allowed_session_types"])


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0017_plainer_help'),
    ]

    operations = [migrations.RunPython(take_system, migrations.RunPython.noop)]
