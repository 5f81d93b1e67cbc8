"""The model that records since when agents could reach the portal gets that name; its one row stays."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0015_messages'),
    ]

    operations = [
        migrations.RenameModel(old_name='Hearing', new_name='Reachability'),
    ]
