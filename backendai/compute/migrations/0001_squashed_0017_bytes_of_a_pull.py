import django.core.serializers.json
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


# A saturated pass counts up every wait and moves every place in the queue. Where a page has room for the new version of
# a row, PostgreSQL writes no index, and takes the room of the old one the next time.
TABLES = ("compute_schedulingrecord", "compute_computesession")


def leave_room(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for table in TABLES:
            schema_editor.execute(f"ALTER TABLE {table} SET (fillfactor = 70)")


def fill_up(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for table in TABLES:
            schema_editor.execute(f"ALTER TABLE {table} RESET (fillfactor)")


class Migration(migrations.Migration):

    # A new database gets all of these at once: a step for each costs seconds of a first start.
    replaces = [
        ('compute', '0001_initial'),
        ('compute', '0002_request_digest'),
        ('compute', '0003_policies_and_rules'),
        ('compute', '0004_record_uid'),
        ('compute', '0005_queue'),
        ('compute', '0006_phases'),
        ('compute', '0007_lean_indexes'),
        ('compute', '0008_room_for_counts'),
        ('compute', '0009_launched_by'),
        ('compute', '0010_retry_on_agent_loss'),
        ('compute', '0011_image_digest'),
        ('compute', '0012_cluster_mode'),
        ('compute', '0013_preopen_ports'),
        ('compute', '0014_newest_first'),
        ('compute', '0015_recent_launches'),
        ('compute', '0016_session_notices'),
        ('compute', '0017_bytes_of_a_pull'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0001_squashed_0010_preferences'),
        ('catalog', '0001_squashed_0004_image_pulls'),
        ('cluster', '0001_squashed_0010_node_facts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Kernel',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('role', models.CharField(default='main', max_length=16)),
                ('index', models.PositiveSmallIntegerField(default=1)),
                ('rank', models.PositiveSmallIntegerField(default=0)),
                ('hostname', models.CharField(default='main1', max_length=63)),
                ('status', models.CharField(choices=[('PENDING', 'pending'), ('SCHEDULED', 'scheduled'), ('PREPARING', 'preparing'), ('PULLING', 'pulling image'), ('CREATING', 'creating'), ('RUNNING', 'running'), ('TERMINATING', 'terminating'), ('TERMINATED', 'terminated'), ('CANCELLED', 'cancelled'), ('ERROR', 'error')], default='PENDING', max_length=16)),
                ('status_reason', models.CharField(blank=True, max_length=64)),
                ('status_message', models.CharField(blank=True, max_length=500)),
                ('progress', models.FloatField(blank=True, null=True)),
                ('fetched_bytes', models.BigIntegerField(blank=True, help_text='Of its image, while it is fetched.', null=True)),
                ('image_bytes', models.BigIntegerField(blank=True, help_text='To fetch in all, as far as that is known.', null=True)),
                ('generation', models.PositiveIntegerField(default=0)),
                ('container_id', models.CharField(blank=True, max_length=64)),
                ('exit_code', models.IntegerField(blank=True, null=True)),
                ('slots', models.JSONField(help_text='Slots of this kernel, as decimal strings.')),
                ('devices', models.JSONField(blank=True, default=dict, help_text='Slot → device id → amount as a decimal string.')),
                ('is_unconfirmed', models.BooleanField(default=False, help_text='Its node has not confirmed that it ended.')),
                ('forced_at', models.DateTimeField(blank=True, help_text='Since when its node is to kill it at once.', null=True)),
                ('steps', models.JSONField(blank=True, default=list, help_text='What its start has done so far, and when.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('moved_from', models.CharField(blank=True, editable=False, max_length=16)),
                ('agent', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='kernels', to='cluster.agent')),
            ],
            options={
                'ordering': ['rank'],
                'indexes': [models.Index(fields=['agent', 'status'], name='compute_ker_agent_i_44df1f_idx'), models.Index(fields=['status'], name='compute_ker_status_ebcbda_idx')],
            },
        ),
        migrations.CreateModel(
            name='ComputeSession',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('image_digest', models.CharField(blank=True, help_text='What its image was at the launch, if known.', max_length=128)),
                ('access_key', models.CharField(blank=True, max_length=32)),
                ('session_type', models.CharField(choices=[('interactive', 'interactive'), ('batch', 'batch')], default='interactive', max_length=16)),
                ('status', models.CharField(choices=[('PENDING', 'pending'), ('SCHEDULED', 'scheduled'), ('PREPARING', 'preparing'), ('PULLING', 'pulling image'), ('CREATING', 'creating'), ('RUNNING', 'running'), ('TERMINATING', 'terminating'), ('TERMINATED', 'terminated'), ('CANCELLED', 'cancelled'), ('ERROR', 'error')], default='PENDING', max_length=16)),
                ('status_reason', models.CharField(blank=True, max_length=64)),
                ('status_message', models.CharField(blank=True, max_length=500)),
                ('status_data', models.JSONField(blank=True, default=dict)),
                ('result', models.CharField(choices=[('UNDEFINED', 'undefined'), ('SUCCESS', 'success'), ('FAILED', 'failed')], default='UNDEFINED', max_length=16)),
                ('priority', models.PositiveSmallIntegerField(default=10)),
                ('slots', models.JSONField(help_text='Slots of each kernel, as decimal strings.')),
                ('shm_bytes', models.BigIntegerField(default=67108864)),
                ('cluster_size', models.PositiveSmallIntegerField(default=1)),
                ('cluster_mode', models.CharField(choices=[('single-node', 'all on one agent'), ('multi-node', 'on any agents')], default='single-node', max_length=16)),
                ('cluster_network', models.PositiveIntegerField(blank=True, editable=False, help_text='Number of its network between agents, once placed.', null=True)),
                ('environ', models.JSONField(blank=True, default=dict)),
                ('preopen_ports', models.JSONField(blank=True, default=list, help_text='Ports that are opened as apps.')),
                ('startup_command', models.TextField(blank=True)),
                ('starts_at', models.DateTimeField(blank=True, null=True)),
                ('batch_timeout', models.DurationField(blank=True, help_text='A batch session that runs longer is ended.', null=True)),
                ('retry_on_agent_loss', models.BooleanField(default=False, help_text='Waits again and runs from the start when its node is lost.')),
                ('designated_agents', models.JSONField(blank=True, default=list, help_text='Ids of the only agents it may run on.')),
                ('launch_id', models.UUIDField(blank=True, editable=False, help_text='Sessions launched together share it.', null=True)),
                ('placement', models.CharField(blank=True, choices=[('spread', 'on different agents, if they can be had'), ('pack', 'on few agents')], max_length=16)),
                ('overtaken_since', models.DateTimeField(blank=True, editable=False, null=True)),
                ('attempts', models.PositiveIntegerField(default=0, help_text='Scheduling tries since it became pending.')),
                ('queue_position', models.PositiveIntegerField(blank=True, editable=False, help_text='Its turn in the last pass, while it waits.', null=True)),
                ('wait_record', models.UUIDField(editable=False, help_text='The newest history row, if it says why the session waits.', null=True)),
                ('wait_digest', models.CharField(blank=True, editable=False, help_text='Of the reason shown now.', max_length=32)),
                ('avoid_agents', models.JSONField(blank=True, default=list, help_text='Agents on which a start failed.')),
                ('retries', models.PositiveSmallIntegerField(default=0, help_text='Starts that failed so far.')),
                ('version', models.PositiveBigIntegerField(default=0)),
                ('idempotency_key', models.CharField(blank=True, max_length=128, null=True)),
                ('request_digest', models.CharField(blank=True, editable=False, max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('scheduled_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ends_at', models.DateTimeField(blank=True, help_text='Its end at the latest, known from its start.', null=True)),
                ('terminating_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('moved_from', models.CharField(blank=True, editable=False, max_length=16)),
                ('depends_on', models.ManyToManyField(blank=True, related_name='dependents', to='compute.computesession')),
                ('image', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to='catalog.image')),
                ('launched_by', models.ForeignKey(blank=True, db_index=False, help_text='The administrator who launched it for its owner; empty: the owner did.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to='accounts.project')),
                ('resource_group', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to='cluster.resourcegroup')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
                'indexes': [models.Index(fields=['owner', '-created_at'], name='compute_com_owner_i_180587_idx'), models.Index(fields=['-created_at', '-id'], name='session_newest'), models.Index(condition=models.Q(('status', 'PENDING')), fields=['resource_group', '-priority', 'created_at'], name='session_queue'), models.Index(condition=models.Q(('status__in', ['CREATING', 'PENDING', 'PREPARING', 'PULLING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=['status'], name='session_live_status')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('status__in', ['CREATING', 'PENDING', 'PREPARING', 'PULLING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=('owner', 'name'), name='session_name_once_per_owner_while_live'), models.UniqueConstraint(condition=models.Q(('cluster_network__isnull', False), ('status__in', ['CREATING', 'PENDING', 'PREPARING', 'PULLING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=('cluster_network',), name='session_cluster_network_once_while_live'), models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('owner', 'idempotency_key'), name='session_once_per_idempotency_key')],
            },
        ),
        migrations.CreateModel(
            name='KernelLog',
            fields=[
                ('kernel', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='log', serialize=False, to='compute.kernel')),
                ('content', models.BinaryField()),
                ('size', models.PositiveIntegerField(default=0)),
                ('is_truncated', models.BooleanField(default=False)),
                ('saved_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
        migrations.AddField(
            model_name='kernel',
            name='session',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='kernels', to='compute.computesession'),
        ),
        migrations.CreateModel(
            name='Allocation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slot', models.CharField(max_length=64)),
                ('amount', models.BigIntegerField(help_text="Thousandths of the slot's unit.")),
                ('agent', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='allocations', to='cluster.agent')),
                ('kernel', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='allocations', to='compute.kernel')),
            ],
            options={
                'indexes': [models.Index(fields=['agent', 'slot'], name='compute_all_agent_i_abea5b_idx')],
                'constraints': [models.UniqueConstraint(fields=('kernel', 'slot'), name='allocation_once_per_kernel_and_slot')],
            },
        ),
        migrations.CreateModel(
            name='LaunchRecord',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('parameters', models.JSONField(encoder=django.core.serializers.json.DjangoJSONEncoder, help_text='The request, without values of secrets.')),
                ('is_pinned', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='launch_records', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-is_pinned', '-created_at', '-id'],
                'indexes': [models.Index(fields=['owner', '-is_pinned', '-created_at', '-id'], name='launch_newest')],
            },
        ),
        migrations.CreateModel(
            name='SchedulingRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('phase', models.CharField(choices=[('schedule', 'schedule'), ('precondition', 'precondition (image)'), ('start', 'start'), ('run', 'run'), ('terminate', 'terminate'), ('sweep', 'sweep'), ('repair', 'repair')], max_length=32)),
                ('result', models.CharField(choices=[('SUCCESS', 'success'), ('FAILURE', 'failure'), ('STALE', 'stale'), ('NEED_RETRY', 'need retry'), ('EXPIRED', 'expired'), ('GIVE_UP', 'give up'), ('SKIPPED', 'skipped')], max_length=16)),
                ('from_status', models.CharField(blank=True, max_length=16)),
                ('to_status', models.CharField(blank=True, max_length=16)),
                ('attempts', models.PositiveIntegerField(default=1)),
                ('error_code', models.CharField(blank=True, max_length=64)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('sub_steps', models.JSONField(blank=True, default=list)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('session', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='records', to='compute.computesession')),
            ],
            options={
                'ordering': ['-updated_at', '-id'],
                'indexes': [models.Index(fields=['session', '-id'], name='compute_sch_session_122e19_idx')],
            },
        ),
        migrations.CreateModel(
            name='SessionNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('launched', 'launched'), ('started', 'started after a wait'), ('failed', 'failed'), ('ended', 'ended by the platform'), ('ending', 'will end soon')], max_length=16)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('due_at', models.DateTimeField(blank=True, help_text='When what it warns of happens.', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('seen_at', models.DateTimeField(blank=True, help_text='When its reader saw it under the bell.', null=True)),
                ('closed_at', models.DateTimeField(blank=True, help_text='When its reader closed the card.', null=True)),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When its reader put it away.', null=True)),
                ('mailed_at', models.DateTimeField(blank=True, help_text='When it was handed to the mail server.', null=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='compute.computesession')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
                'indexes': [models.Index(fields=['owner', '-id'], name='notice_of_owner')],
                'constraints': [models.UniqueConstraint(fields=('session', 'kind'), name='notice_once_per_session_and_kind')],
            },
        ),
        migrations.AddConstraint(
            model_name='kernel',
            constraint=models.UniqueConstraint(fields=('session', 'rank'), name='kernel_rank_once_per_session'),
        ),
        migrations.RunPython(leave_room, fill_up),
    ]
