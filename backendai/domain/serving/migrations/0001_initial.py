import backendai.domain.activity.message_field
import backendai.domain.serving.rule_kinds
import datetime
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('catalog', '0001_initial'),
        ('cluster', '0001_initial'),
        ('compute', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ServingProxy',
            fields=[
                ('name', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('boot', models.CharField(max_length=32)),
                ('seen_at', models.DateTimeField()),
                ('left_at', models.DateTimeField(blank=True, help_text='When it reported that it stops.', null=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=40)),
                ('wish', models.CharField(choices=[('run', 'run'), ('stopped', 'stopped'), ('deleted', 'deleted')], default='run', max_length=16)),
                ('minimum', models.PositiveSmallIntegerField(default=1, validators=[django.core.validators.MaxValueValidator(100)])),
                ('maximum', models.PositiveSmallIntegerField(default=1, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)])),
                ('target', models.FloatField(default=4.0, help_text='Concurrent requests per replica; more replicas start above this.')),
                ('concurrency', models.PositiveIntegerField(default=0, help_text='The most concurrent requests of a replica; 0: unlimited.')),
                ('queue', models.PositiveIntegerField(default=100, help_text='The most requests that wait for a replica.')),
                ('queue_seconds', models.FloatField(default=30.0)),
                ('hold_seconds', models.FloatField(default=60.0, help_text='Seconds that a request waits for the first replica.')),
                ('answer_timeout', models.FloatField(default=600.0, help_text='Seconds of silence after which a request fails.')),
                ('max_body', models.BigIntegerField(default=104857600)),
                ('is_repeatable', models.BooleanField(default=False, help_text='On: a failed request may be sent to a second replica.')),
                ('is_public', models.BooleanField(default=False, help_text='On: anyone may send requests without a token.')),
                ('origins', models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, help_text='Origins of pages that may send requests.')),
                ('warm_up', models.FloatField(db_default=0.0, default=0.0, help_text='Seconds until a new replica gets its full share of requests.')),
                ('affinity', models.CharField(blank=True, db_default='', help_text='Requests with the same value of this header go to one replica; empty: none.', max_length=64)),
                ('canary', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Per cent of requests that go to the new revision; 0: replicas share equally.', validators=[django.core.validators.MaxValueValidator(100)])),
                ('max_surge', models.PositiveSmallIntegerField(default=1)),
                ('max_unavailable', models.PositiveSmallIntegerField(default=0)),
                ('asleep_after', models.DurationField(default=datetime.timedelta(seconds=900))),
                ('desired', models.PositiveSmallIntegerField(default=0, editable=False)),
                ('reached', models.PositiveSmallIntegerField(db_default=0, default=0, editable=False, help_text='The most replicas that have answered at once, of those that are wanted now.')),
                ('panic_until', models.DateTimeField(blank=True, editable=False, null=True)),
                ('scaled_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('asked_at', models.DateTimeField(blank=True, editable=False, help_text='When the newest request came.', null=True)),
                ('peaks', models.JSONField(default=list, editable=False, help_text='Highest loads of the last five minutes, one per half minute.')),
                ('told', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict, editable=False, help_text='Why replicas are missing now; empty: none are.')),
                ('last_number', models.PositiveIntegerField(default=0, editable=False, help_text='The number of its newest replica.')),
                ('version', models.PositiveBigIntegerField(default=1, editable=False)),
                ('idempotency_key', models.CharField(blank=True, editable=False, max_length=128, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='endpoints', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='endpoints', to='accounts.project')),
                ('resource_group', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='endpoints', to='cluster.resourcegroup')),
            ],
            options={
                'ordering': ['name', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='AutoScalingRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('metric', models.CharField(choices=backendai.domain.serving.rule_kinds.metric_choices, max_length=32)),
                ('query', models.CharField(blank=True, db_default='', default='', max_length=1000)),
                ('value', models.FloatField(blank=True, null=True)),
                ('value_at', models.DateTimeField(blank=True, null=True)),
                ('trouble', backendai.domain.activity.message_field.MessageField(blank=True, db_default='', default='')),
                ('up_over', models.FloatField(blank=True, null=True)),
                ('down_under', models.FloatField(blank=True, null=True)),
                ('step', models.PositiveSmallIntegerField(default=1, validators=[django.core.validators.MinValueValidator(1)])),
                ('is_active', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rules', to='serving.endpoint')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='EndpointToken',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('hint', models.CharField(max_length=8)),
                ('per_minute', models.PositiveIntegerField(default=0, help_text='The most requests per minute; 0: unlimited.')),
                ('opens_all', models.BooleanField(db_default=False, default=False, help_text='On: the token opens every endpoint of its owner.')),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to='serving.endpoint')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='Revision',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('command', models.TextField()),
                ('port', models.PositiveIntegerField(default=8000)),
                ('environ', models.JSONField(blank=True, default=dict)),
                ('mounts', models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, help_text='Mounted folders, as in a launch document.')),
                ('slots', models.JSONField(help_text='Amounts of each kernel as decimal strings.')),
                ('cluster_size', models.PositiveSmallIntegerField(default=1)),
                ('cluster_mode', models.CharField(choices=[('single-node', 'all on one agent'), ('multi-node', 'on any agents')], default='single-node', max_length=16)),
                ('probe_path', models.CharField(blank=True, default='/health', help_text='Path of the health check; empty: a connection is enough.', max_length=255)),
                ('startup_timeout', models.DurationField(default=datetime.timedelta(seconds=1200))),
                ('drain_timeout', models.DurationField(default=datetime.timedelta(seconds=600))),
                ('model_name', models.CharField(blank=True, max_length=128)),
                ('failed_starts', models.PositiveIntegerField(default=0, editable=False)),
                ('retry_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_error', models.CharField(blank=True, editable=False, max_length=500)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='revisions', to='serving.endpoint')),
                ('image', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.image')),
            ],
            options={
                'ordering': ['-number'],
            },
        ),
        migrations.CreateModel(
            name='Replica',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('starting', 'starting'), ('loading', 'loading'), ('ready', 'ready'), ('draining', 'draining'), ('ended', 'ended')], default='starting', max_length=16)),
                ('reason', models.CharField(blank=True, max_length=64)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('loading_at', models.DateTimeField(blank=True, null=True)),
                ('ready_at', models.DateTimeField(blank=True, null=True)),
                ('silent_since', models.DateTimeField(blank=True, help_text='Since when no app proxy gets answers from it.', null=True)),
                ('drain_by', models.DateTimeField(blank=True, null=True)),
                ('drain_version', models.PositiveBigIntegerField(default=0, help_text='Version of the endpoint that first lists it as draining.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='replicas', to='serving.endpoint')),
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='replica', to='compute.computesession')),
                ('revision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='replicas', to='serving.revision')),
            ],
            options={
                'ordering': ['-number'],
            },
        ),
        migrations.AddField(
            model_name='endpoint',
            name='current',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='serving.revision'),
        ),
        migrations.AddField(
            model_name='endpoint',
            name='next',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='serving.revision'),
        ),
        migrations.CreateModel(
            name='ScalingRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.CharField(max_length=64)),
                ('message', backendai.domain.activity.message_field.MessageField()),
                ('data', models.JSONField(blank=True, default=dict)),
                ('before', models.PositiveSmallIntegerField(default=0)),
                ('after', models.PositiveSmallIntegerField(default=0)),
                ('attempts', models.PositiveIntegerField(default=1)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('endpoint', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='records', to='serving.endpoint')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='EndpointNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('unavailable', 'unavailable'), ('backing-off', 'backing off'), ('rolled-back', 'rolled back'), ('unused', 'unused')], max_length=16)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('mailed_at', models.DateTimeField(blank=True, null=True)),
                ('seen_at', models.DateTimeField(blank=True, help_text='When the owner saw it under the bell.', null=True)),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When the owner dismissed it.', null=True)),
                ('endpoint', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='serving.endpoint')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
                'constraints': [models.UniqueConstraint(fields=('endpoint', 'kind'), name='notice_once_per_endpoint_and_kind')],
            },
        ),
        migrations.CreateModel(
            name='ProxyReading',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('proxy', models.CharField(max_length=128)),
                ('boot', models.CharField(max_length=32)),
                ('at', models.DateTimeField()),
                ('uptime', models.FloatField()),
                ('book_version', models.PositiveBigIntegerField(default=0)),
                ('requests', models.PositiveBigIntegerField(default=0)),
                ('completions', models.PositiveBigIntegerField(default=0)),
                ('errors', models.PositiveBigIntegerField(default=0)),
                ('refused', models.PositiveBigIntegerField(default=0)),
                ('busy_seconds', models.FloatField(default=0.0)),
                ('queued_seconds', models.FloatField(default=0.0)),
                ('open', models.PositiveIntegerField(default=0)),
                ('queued', models.PositiveIntegerField(default=0)),
                ('held', models.PositiveIntegerField(default=0)),
                ('histogram', models.JSONField(default=list, help_text='Number of answers by total time; bounds: see ``measures``.')),
                ('endpoint', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='readings', to='serving.endpoint')),
            ],
            options={
                'ordering': ['-at'],
                'indexes': [models.Index(fields=['endpoint', 'at'], name='serving_pro_endpoin_f3641a_idx'), models.Index(fields=['at'], name='serving_pro_at_8be3f1_idx')],
            },
        ),
        migrations.CreateModel(
            name='ReplicaSight',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('proxy', models.CharField(max_length=128)),
                ('boot', models.CharField(max_length=32)),
                ('at', models.DateTimeField()),
                ('is_answering', models.BooleanField(default=False)),
                ('message', models.CharField(blank=True, help_text='Result of the last probe.', max_length=300)),
                ('open', models.PositiveIntegerField(default=0)),
                ('requests', models.PositiveBigIntegerField(default=0)),
                ('errors', models.PositiveBigIntegerField(default=0)),
                ('replica', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='sights', to='serving.replica')),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.UniqueConstraint(fields=('replica', 'proxy'), name='sight_once_per_replica_and_proxy')],
            },
        ),
        migrations.AddConstraint(
            model_name='revision',
            constraint=models.UniqueConstraint(fields=('endpoint', 'number'), name='revision_number_once_per_endpoint'),
        ),
        migrations.AddIndex(
            model_name='replica',
            index=models.Index(condition=models.Q(('state', 'ended'), _negated=True), fields=['endpoint'], name='replica_live_of_endpoint'),
        ),
        migrations.AddConstraint(
            model_name='replica',
            constraint=models.UniqueConstraint(fields=('endpoint', 'number'), name='replica_number_once_per_endpoint'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.UniqueConstraint(condition=models.Q(('wish', 'deleted'), _negated=True), fields=('project', 'name'), name='endpoint_name_once_per_project'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('owner', 'idempotency_key'), name='endpoint_once_per_idempotency_key'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('minimum__lte', models.F('maximum'))), name='endpoint_minimum_below_maximum'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('maximum__gte', 1)), name='endpoint_maximum_is_one_or_more'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('target__gt', 0)), name='endpoint_target_above_zero'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('max_surge__gte', 1), ('max_unavailable__gte', 1), _connector='OR'), name='endpoint_can_be_updated'),
        ),
        migrations.AddIndex(
            model_name='scalingrecord',
            index=models.Index(fields=['endpoint', '-id'], name='serving_sca_endpoin_875ecb_idx'),
        ),
    ]
