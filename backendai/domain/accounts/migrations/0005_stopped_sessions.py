from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0004_required_labels'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcepolicy',
            name='max_stopped_sessions',
            field=models.PositiveIntegerField(blank=True, help_text='Stopped sessions of one user at once.', null=True),
        ),
    ]
