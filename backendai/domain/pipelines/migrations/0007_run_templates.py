from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("pipelines", "0006_sealed_files")]
    operations = [
        migrations.AddField(
            model_name="run",
            name="template",
            field=models.CharField(
                blank=True, default="", help_text="The version of the template; empty: none.", max_length=128
            ),
            preserve_default=False,
        )
    ]
