from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compute", "0029_folders")]

    operations = [
        migrations.AddField(
            model_name="computesession",
            name="mount_count",
            field=models.PositiveSmallIntegerField(
                default=0, editable=False, help_text="Folders that it mounts."
            ),
        ),
        migrations.AddField(
            model_name="computesession",
            name="start_in",
            field=models.CharField(
                blank=True, default="", help_text="Where programs begin; empty: in the home.", max_length=255
            ),
            preserve_default=False,
        ),
    ]
