from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("serving", "0007_mailed_notices")]

    operations = [
        migrations.AddField(
            "endpoint",
            "reached",
            models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="The most replicas that have answered at once, of those that are wanted now.",
            ),
        ),
    ]
