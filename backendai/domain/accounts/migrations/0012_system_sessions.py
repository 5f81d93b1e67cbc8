import backendai.base.core.messages
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0011_folder_limits'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcepolicy',
            name='max_system_sessions',
            field=models.PositiveSmallIntegerField(blank=True, help_text=backendai.base.core.messages.Message('Of one user at once, for access to folders.'), null=True),
        ),
    ]
