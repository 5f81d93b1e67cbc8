from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("pipelines", "0002_excused_elements"),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="growths",
            field=models.PositiveSmallIntegerField(default=0, help_text="How many times its amounts have grown."),
        ),
    ]
