from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0044_no_preparing'),
    ]

    operations = [
        migrations.AddField(
            model_name='kernel',
            name='memory_killed_at',
            field=models.DateTimeField(editable=False, help_text='When that was noticed last.', null=True),
        ),
        migrations.AddField(
            model_name='kernel',
            name='memory_kills',
            field=models.PositiveIntegerField(db_default=0, default=0, editable=False, help_text='Programs in it that were ended at the memory limit.'),
        ),
    ]
