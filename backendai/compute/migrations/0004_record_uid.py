import uuid

from django.db import migrations, models


def fill(apps, schema_editor):
    records = apps.get_model("compute", "SchedulingRecord").objects.filter(uid=None)
    while batch := list(records.only("pk")[:2000]):
        for record in batch:
            record.uid = uuid.uuid4()
        records.model.objects.bulk_update(batch, ["uid"], batch_size=200)


class Migration(migrations.Migration):

    dependencies = [("compute", "0003_policies_and_rules")]

    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="schedulingrecord",
            name="uid",
            field=models.UUIDField(default=uuid.uuid4, editable=False, unique=True),
        ),
    ]
