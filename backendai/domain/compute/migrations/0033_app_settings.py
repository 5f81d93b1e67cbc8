import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("compute", "0032_session_ssh_keys"),
    ]

    operations = [
        migrations.CreateModel(
            name="AppSetting",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("service", models.CharField(max_length=32)),
                ("title", models.CharField(blank=True, max_length=40)),
                ("arguments", models.JSONField(blank=True, default=dict)),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="app_settings",
                        to="compute.computesession",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="appsetting",
            constraint=models.UniqueConstraint(fields=("session", "service"), name="app_setting_once"),
        ),
    ]
