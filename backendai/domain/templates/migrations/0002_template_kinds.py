from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("templates", "0001_templates")]
    operations = [
        migrations.AddField(
            model_name="template",
            name="kind",
            field=models.CharField(default="session", help_text="What its documents launch.", max_length=16),
        )
    ]
