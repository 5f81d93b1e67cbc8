from django.db import migrations, models

import backendai.base.core.messages


class Migration(migrations.Migration):
    dependencies = [("compute", "0035_failure_policies")]

    operations = [
        migrations.AddField(
            model_name="sessionmount",
            name="cut_at",
            field=models.DateTimeField(
                blank=True,
                help_text=backendai.base.core.messages.Message("When it was taken out of the running session."),
                null=True,
            ),
        ),
    ]
