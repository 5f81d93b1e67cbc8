from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0003_preempt_after'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='resourcegroup',
            name='strategy_options',
        ),
    ]
