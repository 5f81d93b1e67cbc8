import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    # A new database gets all of these at once: a step for each costs seconds of a first start.
    replaces = [
        ('usage', '0001_initial'),
        ('usage', '0002_by_day'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0001_squashed_0010_preferences'),
        ('cluster', '0001_squashed_0010_node_facts'),
        ('compute', '0001_squashed_0017_bytes_of_a_pull'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ObservationMark',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('record_id', models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='ObservedKernel',
            fields=[
                ('kernel', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='observed', serialize=False, to='compute.kernel')),
                ('generation', models.PositiveIntegerField()),
                ('until', models.DateTimeField()),
                ('is_closed', models.BooleanField(default=False)),
            ],
            options={
                'indexes': [models.Index(fields=['is_closed', 'until'], name='usage_obser_is_clos_8e4115_idx')],
            },
        ),
        migrations.CreateModel(
            name='UsageBucket',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('slot', models.CharField(max_length=64)),
                ('amount_seconds', models.FloatField(default=0.0, help_text="Amount in the slot's unit, times seconds.")),
                ('domain', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage_buckets', to='accounts.domain')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage_buckets', to='accounts.project')),
                ('resource_group', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage_buckets', to='cluster.resourcegroup')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage_buckets', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-day', 'slot'],
                'indexes': [models.Index(fields=['day'], name='usage_usage_day_198b2d_idx')],
                'constraints': [models.UniqueConstraint(fields=('resource_group', 'day', 'user', 'project', 'domain', 'slot'), name='usage_bucket_once')],
            },
        ),
    ]
