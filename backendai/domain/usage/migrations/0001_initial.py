import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('cluster', '0001_initial'),
        ('compute', '0001_initial'),
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
                ('amount_seconds', models.FloatField(default=0.0, help_text="Allocated amount in the slot's unit, times seconds.")),
                ('used_seconds', models.FloatField(db_default=0.0, default=0.0, help_text='The part of it that programs used, as far as that was measured.')),
                ('measured_seconds', models.FloatField(db_default=0.0, default=0.0, help_text='The part of it that was allocated while use was measured.')),
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
        migrations.CreateModel(
            name='UsageSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('seconds', models.FloatField()),
                ('cpu', models.FloatField(help_text='Mean number of used cores in the interval.', null=True)),
                ('mem_bytes', models.BigIntegerField(null=True)),
                ('devices', models.JSONField(default=dict)),
                ('net_rx', models.BigIntegerField(help_text='Bytes received in the interval.', null=True)),
                ('net_tx', models.BigIntegerField(help_text='Bytes sent in the interval.', null=True)),
                ('io_read', models.BigIntegerField(help_text='Bytes read from disks in the interval.', null=True)),
                ('io_write', models.BigIntegerField(help_text='Bytes written to disks in the interval.', null=True)),
                ('is_thinned', models.BooleanField(db_default=False, default=False, help_text='Combines several samples into one.')),
                ('kernel', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='compute.kernel')),
            ],
            options={
                'ordering': ['at'],
                'indexes': [models.Index(fields=['is_thinned', 'at'], name='usage_sample_age')],
                'constraints': [models.UniqueConstraint(fields=('kernel', 'at'), name='usage_sample_once')],
            },
        ),
    ]
