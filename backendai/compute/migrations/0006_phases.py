from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("compute", "0005_queue")]

    operations = [
        migrations.AddField(
            model_name="computesession",
            name="ends_at",
            field=models.DateTimeField(
                blank=True, help_text="Its end at the latest, known from its start.", null=True
            ),
        ),
        migrations.AddField(
            model_name="kernel",
            name="forced_at",
            field=models.DateTimeField(
                blank=True, help_text="Since when its node is to kill it at once.", null=True
            ),
        ),
        migrations.AddField(
            model_name="kernel",
            name="steps",
            field=models.JSONField(blank=True, default=list, help_text="What its start has done so far, and when."),
        ),
        migrations.AlterField(
            model_name="schedulingrecord",
            name="phase",
            field=models.CharField(
                choices=[
                    ("schedule", "schedule"),
                    ("precondition", "precondition (image)"),
                    ("start", "start"),
                    ("run", "run"),
                    ("terminate", "terminate"),
                    ("sweep", "sweep"),
                    ("repair", "repair"),
                ],
                max_length=32,
            ),
        ),
    ]
