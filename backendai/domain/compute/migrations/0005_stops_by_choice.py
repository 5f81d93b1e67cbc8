from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0004_session_shares'),
    ]

    operations = [
        migrations.AddField(
            model_name='computesession',
            name='may_be_stopped',
            field=models.BooleanField(db_default=False, default=False, help_text='Its program can be stopped, and begins again.'),
        ),
    ]
