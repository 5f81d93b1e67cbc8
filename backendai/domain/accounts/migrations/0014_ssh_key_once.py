from django.db import migrations, models
from django.db.models import Count


def mark_contested(apps, schema_editor):
    """Keys that several accounts have opened nothing before, and open nothing until one account proves that it holds
    them."""
    keys = apps.get_model("accounts", "SshKey").objects
    several = keys.values("fingerprint").annotate(number=Count("pk")).filter(number__gt=1).order_by()
    keys.filter(fingerprint__in=list(several.values_list("fingerprint", flat=True))).update(is_contested=True)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0013_endpoint_limits")]

    operations = [
        migrations.AddField(
            model_name="sshkey",
            name="is_contested",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.RunPython(mark_contested, migrations.RunPython.noop, elidable=True),
        migrations.AddConstraint(
            model_name="sshkey",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_contested", False)), fields=("fingerprint",), name="ssh_key_once"
            ),
        ),
    ]
