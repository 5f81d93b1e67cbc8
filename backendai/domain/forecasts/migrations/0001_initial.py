

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('cluster', '0001_initial'),
        ('compute', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ForecastScore',
            fields=[
                ('resource_group', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='forecast_score', serialize=False, to='cluster.resourcegroup')),
                ('number', models.PositiveIntegerField()),
                ('inside', models.FloatField()),
                ('error_seconds', models.FloatField()),
                ('bias', models.FloatField()),
                ('worst', models.JSONField(default=list)),
                ('early', models.FloatField()),
                ('late', models.FloatField()),
                ('latest', models.FloatField()),
                ('is_reliable', models.BooleanField()),
                ('updated_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='FreeAhead',
            fields=[
                ('resource_group', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='free_ahead', serialize=False, to='cluster.resourcegroup')),
                ('moments', models.JSONField(default=list)),
                ('endless', models.PositiveIntegerField()),
                ('was_cut', models.BooleanField()),
                ('looked_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='LengthsMark',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('ended_at', models.DateTimeField()),
                ('session_id', models.UUIDField()),
            ],
        ),
        migrations.CreateModel(
            name='RunLengths',
            fields=[
                ('key', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('counts', models.JSONField(default=list)),
                ('updated_at', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='StartForecast',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='start_forecast', serialize=False, to='compute.computesession')),
                ('expected', models.DateTimeField(null=True)),
                ('early', models.DateTimeField(null=True)),
                ('late', models.DateTimeField(null=True)),
                ('latest', models.DateTimeField(null=True)),
                ('is_reliable', models.BooleanField(default=False)),
                ('code', models.CharField(blank=True, max_length=16)),
                ('endless', models.PositiveIntegerField(default=0, help_text='Placed sessions of the group whose end is unknown.')),
                ('updated_at', models.DateTimeField()),
                ('method', models.PositiveSmallIntegerField(help_text='The version of the method that made the first one.')),
                ('first_at', models.DateTimeField(null=True)),
                ('first_expected', models.DateTimeField(null=True)),
                ('first_early', models.DateTimeField(null=True)),
                ('first_late', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('ratio', models.FloatField(null=True)),
                ('resource_group', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='cluster.resourcegroup')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('ratio__isnull', False)), fields=['resource_group', '-started_at'], name='forecast_last_scored'), models.Index(fields=['updated_at'], name='forecast_age'), models.Index(condition=models.Q(('ratio__isnull', True)), fields=['updated_at'], name='forecast_unscored')],
            },
        ),
    ]
