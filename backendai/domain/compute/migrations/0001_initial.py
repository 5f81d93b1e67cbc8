import backendai.base.core.session_kinds
import backendai.domain.activity.message_field
import datetime
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


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('activity', '0001_initial'),
        ('catalog', '0001_initial'),
        ('cluster', '0001_initial'),
        ('storage', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ComputeSession',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('image_digest', models.CharField(blank=True, help_text='Digest at the launch; empty: unknown.', max_length=128)),
                ('access_key', models.CharField(blank=True, max_length=32)),
                ('session_type', models.CharField(choices=backendai.base.core.session_kinds.kind_choices, default='interactive', max_length=16)),
                ('status', models.CharField(choices=[('PENDING', 'pending'), ('SCHEDULED', 'scheduled'), ('PULLING', 'pulling image'), ('CREATING', 'creating'), ('RUNNING', 'running'), ('TERMINATING', 'terminating'), ('TERMINATED', 'terminated'), ('CANCELLED', 'cancelled'), ('ERROR', 'error')], default='PENDING', max_length=16)),
                ('status_reason', models.CharField(blank=True, max_length=64)),
                ('status_message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('status_data', models.JSONField(blank=True, default=dict)),
                ('result', models.CharField(choices=[('UNDEFINED', 'undefined'), ('SUCCESS', 'success'), ('FAILED', 'failed')], default='UNDEFINED', max_length=16)),
                ('priority', models.PositiveSmallIntegerField(default=10)),
                ('owner_priority', models.PositiveSmallIntegerField(editable=False, help_text='The highest priority that its owner may set.', null=True)),
                ('slots', models.JSONField(help_text='Amounts of each kernel as decimal strings; if they differ, of the main one.')),
                ('total_slots', models.JSONField(blank=True, editable=False, help_text="Sum of all kernels' amounts; empty: all are equal.", null=True)),
                ('shm_bytes', models.BigIntegerField(default=67108864)),
                ('cluster_size', models.PositiveSmallIntegerField(default=1)),
                ('cluster_mode', models.CharField(choices=[('single-node', 'all on one agent'), ('multi-node', 'on any agents')], default='single-node', max_length=16)),
                ('cluster_network', models.PositiveIntegerField(blank=True, editable=False, help_text='Number of its network across agents, if it has one.', null=True)),
                ('environ', models.JSONField(blank=True, default=dict)),
                ('preopen_ports', models.JSONField(blank=True, default=list, help_text='Further ports that appear as apps.')),
                ('startup_command', models.TextField(blank=True)),
                ('file_bytes', models.PositiveIntegerField(default=0, help_text="Bytes of the launch's files, including their names.")),
                ('mount_count', models.PositiveSmallIntegerField(default=0, editable=False, help_text='Number of its mounts.')),
                ('start_in', models.CharField(blank=True, help_text='Working directory of programs; empty: the home.', max_length=255)),
                ('starts_at', models.DateTimeField(blank=True, null=True)),
                ('batch_timeout', models.DurationField(blank=True, help_text='The longest run of a batch session; empty: unlimited.', null=True)),
                ('retry_on_agent_loss', models.BooleanField(default=False, help_text='Run again from the start if its agent is lost.')),
                ('done_when', models.CharField(blank=True, db_default='', default='', help_text="Role whose end completes the session, or all; empty: the main kernel's end.", max_length=16)),
                ('designated_agents', models.JSONField(blank=True, default=list, help_text='Ids of the only allowed agents.')),
                ('launch_id', models.UUIDField(blank=True, editable=False, help_text='The same for all sessions of one launch.', null=True)),
                ('run_id', models.UUIDField(blank=True, editable=False, help_text='The run to which the session belongs.', null=True)),
                ('placement', models.CharField(blank=True, choices=[('spread', 'on different agents, if they can be had'), ('pack', 'on few agents')], max_length=16)),
                ('depends_when', models.CharField(choices=[('success', 'all succeeded'), ('failure', 'all ended without success'), ('any', 'all ended, no matter how')], db_default='success', default='success', max_length=8)),
                ('overtaken_since', models.DateTimeField(blank=True, editable=False, null=True)),
                ('attempts', models.PositiveIntegerField(default=0, help_text='Scheduling tries since the session became pending.')),
                ('queue_position', models.PositiveIntegerField(blank=True, editable=False, help_text='Position in the last pass, while it is pending.', null=True)),
                ('wait_record', models.UUIDField(editable=False, help_text='The newest history row, if it contains the wait reason.', null=True)),
                ('wait_digest', models.CharField(blank=True, editable=False, help_text='Digest of the wait reason.', max_length=32)),
                ('avoid_agents', models.JSONField(blank=True, default=list, help_text='Ids of agents on which a start failed.')),
                ('retries', models.PositiveSmallIntegerField(default=0, help_text='Number of failed starts.')),
                ('version', models.PositiveBigIntegerField(default=0)),
                ('idempotency_key', models.CharField(blank=True, max_length=128, null=True)),
                ('spec', models.JSONField(default=dict, editable=False, help_text='The launch request, without secret values.')),
                ('request_digest', models.CharField(blank=True, editable=False, max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('scheduled_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ends_at', models.DateTimeField(blank=True, help_text='The latest end, which people may move.', null=True)),
                ('is_end_moved', models.BooleanField(db_default=False, default=False, editable=False)),
                ('terminating_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('moved_from', models.CharField(blank=True, editable=False, max_length=16)),
                ('depends_on', models.ManyToManyField(blank=True, related_name='dependents', to='compute.computesession')),
                ('image', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to='catalog.image')),
                ('launched_by', models.ForeignKey(blank=True, db_index=False, help_text='The administrator who launched the session for its owner; empty: the owner.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to='accounts.project')),
                ('resource_group', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='compute_sessions', to='cluster.resourcegroup')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Kernel',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('role', models.CharField(default='main', max_length=16)),
                ('index', models.PositiveSmallIntegerField(default=1)),
                ('rank', models.PositiveSmallIntegerField(default=0)),
                ('hostname', models.CharField(default='main1', max_length=63)),
                ('status', models.CharField(choices=[('PENDING', 'pending'), ('SCHEDULED', 'scheduled'), ('PULLING', 'pulling image'), ('CREATING', 'creating'), ('RUNNING', 'running'), ('TERMINATING', 'terminating'), ('TERMINATED', 'terminated'), ('CANCELLED', 'cancelled'), ('ERROR', 'error')], default='PENDING', max_length=16)),
                ('status_reason', models.CharField(blank=True, max_length=64)),
                ('status_message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('progress', models.FloatField(blank=True, null=True)),
                ('fetched_bytes', models.BigIntegerField(blank=True, help_text='Bytes of the image pulled so far.', null=True)),
                ('image_bytes', models.BigIntegerField(blank=True, help_text='Bytes to pull; may grow during the pull.', null=True)),
                ('generation', models.PositiveIntegerField(default=0)),
                ('container_id', models.CharField(blank=True, max_length=64)),
                ('exit_code', models.IntegerField(blank=True, null=True)),
                ('slots', models.JSONField(help_text='Amounts of this kernel as decimal strings.')),
                ('image_digest', models.CharField(blank=True, help_text='Digest of its own image at the launch.', max_length=128)),
                ('shm_bytes', models.BigIntegerField(blank=True, null=True)),
                ('environ', models.JSONField(blank=True, default=dict, help_text="Environment variables, added to the session's.")),
                ('startup_command', models.TextField(blank=True)),
                ('on_failure', models.CharField(choices=[('end', 'the session ends'), ('tolerate', 'the others go on'), ('restart', 'the kernel starts again')], db_default='end', default='end', help_text='What a failure of the kernel does; empty: it ends the session.', max_length=16)),
                ('after', models.JSONField(db_default=[], default=list, editable=False, help_text='Roles that must be ready before it starts.')),
                ('is_held', models.BooleanField(db_default=False, default=False, editable=False, help_text='Waiting for the roles in ``after``.')),
                ('ready', models.JSONField(db_default={}, default=dict, editable=False, help_text='Readiness check (port, seconds); empty: none.')),
                ('restarts', models.PositiveSmallIntegerField(db_default=0, default=0, editable=False, help_text='Number of restarts on its agent.')),
                ('starts_after', models.DateTimeField(editable=False, help_text='The restart waits for this time.', null=True)),
                ('devices', models.JSONField(blank=True, default=dict, help_text='By slot and device id, the decimal amount.')),
                ('memory_kills', models.PositiveIntegerField(db_default=0, default=0, editable=False, help_text='Programs in it that were ended at the memory limit.')),
                ('memory_killed_at', models.DateTimeField(editable=False, help_text='When that was noticed last.', null=True)),
                ('is_unconfirmed', models.BooleanField(default=False, help_text='Its agent has not confirmed its end.')),
                ('forced_at', models.DateTimeField(blank=True, help_text='When its agent was ordered to kill it at once.', null=True)),
                ('steps', models.JSONField(blank=True, default=list, help_text='Completed steps of its start, with times.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('moved_from', models.CharField(blank=True, editable=False, max_length=16)),
                ('agent', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='kernels', to='cluster.agent')),
                ('image', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='kernels', to='catalog.image')),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='kernels', to='compute.computesession')),
            ],
            options={
                'ordering': ['rank'],
            },
        ),
        migrations.CreateModel(
            name='SessionTraffic',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='traffic', serialize=False, to='compute.computesession')),
                ('last_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='AppSetting',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(max_length=32)),
                ('title', models.CharField(blank=True, max_length=40)),
                ('arguments', models.JSONField(blank=True, default=dict)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='app_settings', to='compute.computesession')),
            ],
        ),
        migrations.CreateModel(
            name='IdleWarning',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('checker_name', models.CharField(max_length=64)),
                ('kind', models.CharField(max_length=24)),
                ('sign', models.CharField(blank=True, help_text='Fingerprint of the rule that gave the warning.', max_length=16)),
                ('lead', models.DurationField(default=datetime.timedelta(0), help_text='Time between the warning and the end, as set by the rule.')),
                ('warned_at', models.DateTimeField(blank=True, null=True)),
                ('due_at', models.DateTimeField(blank=True, null=True)),
                ('idle_since', models.DateTimeField(blank=True, null=True)),
                ('measured', models.JSONField(blank=True, default=dict, help_text='By slot, the average use in per cent of the allocation.')),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('extended_until', models.DateTimeField(blank=True, null=True)),
                ('extensions', models.PositiveSmallIntegerField(default=0)),
                ('collected_at', models.DateTimeField(blank=True, null=True)),
                ('checker', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='warnings', to='cluster.idlechecker')),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='idle_warnings', to='compute.computesession')),
            ],
            options={
                'ordering': ['due_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='KernelLog',
            fields=[
                ('kernel', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='log', serialize=False, to='compute.kernel')),
                ('content', models.BinaryField()),
                ('generation', models.PositiveIntegerField(db_default=0, default=0, help_text='The start of the kernel that wrote it; 0: unknown.')),
                ('size', models.PositiveIntegerField(default=0)),
                ('is_truncated', models.BooleanField(default=False)),
                ('saved_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
        migrations.CreateModel(
            name='ImageCommit',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('heard_at', models.DateTimeField(blank=True, help_text='When its agent last gave a word about it.', null=True)),
                ('session_name', models.CharField(max_length=64)),
                ('generation', models.IntegerField()),
                ('base_name', models.CharField(max_length=128)),
                ('title', models.CharField(max_length=32)),
                ('reference', models.CharField(max_length=255, unique=True)),
                ('status', models.CharField(choices=[('WAITING', 'waiting'), ('COMMITTING', 'being made'), ('PUSHING', 'on its way to the registry'), ('DONE', 'made'), ('FAILED', 'failed'), ('CANCELLED', 'cancelled')], default='WAITING', max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('agent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='commits', to='cluster.agent')),
                ('base', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.image')),
                ('job', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='commit', to='activity.backgroundjob')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('registry', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.registry')),
                ('session', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='commits', to='compute.computesession')),
                ('kernel', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='compute.kernel')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='HomeKeep',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('generation', models.IntegerField()),
                ('ends_session', models.BooleanField(default=False, help_text='Terminate the session after its home is copied.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('folder', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='kept_home', to='storage.folder')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='kept_homes', to='compute.computesession')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.kernel')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='EarlierLog',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('generation', models.PositiveIntegerField()),
                ('content', models.BinaryField()),
                ('size', models.PositiveIntegerField(default=0)),
                ('is_truncated', models.BooleanField(default=False)),
                ('saved_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('kernel', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='earlier_logs', to='compute.kernel')),
            ],
            options={
                'ordering': ['generation'],
            },
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
        ),
        migrations.CreateModel(
            name='LaunchRecord',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('parameters', models.JSONField(encoder=django.core.serializers.json.DjangoJSONEncoder, help_text='The launch request, without secret values.')),
                ('is_pinned', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='launch_records', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-is_pinned', '-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='PublicApp',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(max_length=32)),
                ('label', models.CharField(editable=False, max_length=63, unique=True)),
                ('opened_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('closes_at', models.DateTimeField(blank=True, help_text='Empty: when the session ends.', null=True)),
                ('opened_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='public_apps', to='compute.computesession')),
            ],
            options={
                'ordering': ['-opened_at'],
            },
        ),
        migrations.CreateModel(
            name='SchedulingRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('phase', models.CharField(choices=[('schedule', 'schedule'), ('precondition', 'precondition (image)'), ('start', 'start'), ('run', 'run'), ('terminate', 'terminate'), ('sweep', 'sweep'), ('repair', 'repair')], max_length=32)),
                ('result', models.CharField(choices=[('SUCCESS', 'success'), ('FAILURE', 'failure'), ('NEED_RETRY', 'need retry'), ('EXPIRED', 'expired'), ('GIVE_UP', 'give up'), ('SKIPPED', 'skipped')], max_length=16)),
                ('from_status', models.CharField(blank=True, max_length=16)),
                ('to_status', models.CharField(blank=True, max_length=16)),
                ('attempts', models.PositiveIntegerField(default=1)),
                ('error_code', models.CharField(blank=True, max_length=64)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('sub_steps', models.JSONField(blank=True, default=list)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('session', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='records', to='compute.computesession')),
            ],
            options={
                'ordering': ['-updated_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='SessionFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.CharField(help_text='Path, relative to the home folder.', max_length=255)),
                ('content', models.TextField()),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='files', to='compute.computesession')),
            ],
            options={
                'ordering': ['path'],
            },
        ),
        migrations.CreateModel(
            name='SessionMount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('folder_name', models.CharField(help_text="The folder's name at the launch.", max_length=64)),
                ('sub_path', models.CharField(blank=True, max_length=1024)),
                ('target', models.CharField(help_text='The mount path: absolute, inside the kernels.', max_length=255)),
                ('rights', models.CharField(choices=[('none', 'no access'), ('view', 'can view'), ('edit', 'can edit')], max_length=8)),
                ('role', models.CharField(blank=True, help_text='The role whose kernels mount it; empty: all kernels.', max_length=16)),
                ('is_automatic', models.BooleanField(default=False, help_text='Mounted without a request, as the name begins with a dot.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('released_at', models.DateTimeField(blank=True, null=True)),
                ('cut_at', models.DateTimeField(blank=True, help_text='When the folder was unmounted from the running session.', null=True)),
                ('folder', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='mounts', to='storage.folder')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mounts', to='compute.computesession')),
            ],
            options={
                'ordering': ['session', 'target'],
            },
        ),
        migrations.CreateModel(
            name='SessionNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('launched', 'launched'), ('starting', 'will probably start soon'), ('started', 'started after a wait'), ('failed', 'failed'), ('finished', 'finished successfully'), ('ended', 'ended by the platform'), ('ending', 'will end soon'), ('idle', 'idle, and will end soon'), ('app-closed', 'an app is not public any more')], max_length=16)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('due_at', models.DateTimeField(blank=True, help_text='When the announced event happens.', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('seen_at', models.DateTimeField(blank=True, help_text='When the owner saw it under the bell.', null=True)),
                ('closed_at', models.DateTimeField(blank=True, help_text='When the owner closed the card.', null=True)),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When the owner dismissed it.', null=True)),
                ('mailed_at', models.DateTimeField(blank=True, help_text='When the mail was sent.', null=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='compute.computesession')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='SessionSshKey',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('version', models.PositiveIntegerField(default=1)),
                ('fingerprint', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='ssh_key', to='compute.computesession')),
            ],
        ),
        migrations.CreateModel(
            name='UnknownKernel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kernel_id', models.UUIDField()),
                ('generation', models.PositiveIntegerField()),
                ('is_running', models.BooleanField(default=True)),
                ('is_kept', models.BooleanField(default=False, help_text='Ended in the database, but its agent refuses the removal.')),
                ('manifest', models.JSONField(blank=True, default=dict, help_text='Description signed by the portal at its start.')),
                ('session_id', models.UUIDField(blank=True, db_index=True, null=True)),
                ('removal_at', models.DateTimeField(blank=True, help_text='When an administrator ordered the removal.', null=True)),
                ('found_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('mailed_at', models.DateTimeField(blank=True, help_text='When superadmins were notified by mail.', null=True)),
                ('agent', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='cluster.agent')),
            ],
            options={
                'ordering': ['found_at', 'pk'],
            },
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(fields=['owner', '-created_at'], name='compute_com_owner_i_180587_idx'),
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(fields=['-created_at', '-id'], name='session_newest'),
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(condition=models.Q(('status__in', ['CANCELLED', 'ERROR', 'TERMINATED'])), fields=['-ended_at', '-id', 'name'], name='session_last_ended'),
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(condition=models.Q(('status__in', ['CANCELLED', 'ERROR', 'TERMINATED'])), fields=['owner', '-ended_at', '-id', 'name'], name='session_ended_owner'),
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(condition=models.Q(('status', 'PENDING')), fields=['resource_group', '-priority', 'created_at'], name='session_queue'),
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(condition=models.Q(('status__in', ['CREATING', 'PENDING', 'PULLING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=['status'], name='session_live_status'),
        ),
        migrations.AddIndex(
            model_name='computesession',
            index=models.Index(condition=models.Q(('run_id__isnull', False)), fields=['owner'], name='session_of_run'),
        ),
        migrations.AddConstraint(
            model_name='computesession',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['CREATING', 'PENDING', 'PULLING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=('owner', 'name'), name='session_name_once_per_owner_while_live'),
        ),
        migrations.AddConstraint(
            model_name='computesession',
            constraint=models.UniqueConstraint(condition=models.Q(('cluster_network__isnull', False), ('status__in', ['CREATING', 'PENDING', 'PULLING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=('cluster_network',), name='session_cluster_network_once_while_live'),
        ),
        migrations.AddConstraint(
            model_name='computesession',
            constraint=models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('owner', 'idempotency_key'), name='session_once_per_idempotency_key'),
        ),
        migrations.AddConstraint(
            model_name='appsetting',
            constraint=models.UniqueConstraint(fields=('session', 'service'), name='app_setting_once'),
        ),
        migrations.AddConstraint(
            model_name='idlewarning',
            constraint=models.UniqueConstraint(fields=('session', 'checker'), name='idle_warning_once_per_checker'),
        ),
        migrations.AddIndex(
            model_name='kernellog',
            index=models.Index(fields=['saved_at', 'kernel', 'size'], name='log_by_age'),
        ),
        migrations.AddIndex(
            model_name='kernel',
            index=models.Index(fields=['agent', 'status'], name='compute_ker_agent_i_44df1f_idx'),
        ),
        migrations.AddIndex(
            model_name='kernel',
            index=models.Index(fields=['status'], name='compute_ker_status_ebcbda_idx'),
        ),
        migrations.AddConstraint(
            model_name='kernel',
            constraint=models.UniqueConstraint(fields=('session', 'rank'), name='kernel_rank_once_per_session'),
        ),
        migrations.AddIndex(
            model_name='imagecommit',
            index=models.Index(condition=models.Q(('status__in', ['WAITING', 'COMMITTING', 'PUSHING'])), fields=['agent'], name='commit_not_over'),
        ),
        migrations.AddConstraint(
            model_name='earlierlog',
            constraint=models.UniqueConstraint(fields=('kernel', 'generation'), name='earlier_log_once'),
        ),
        migrations.AddIndex(
            model_name='allocation',
            index=models.Index(fields=['agent', 'slot'], name='compute_all_agent_i_abea5b_idx'),
        ),
        migrations.AddConstraint(
            model_name='allocation',
            constraint=models.UniqueConstraint(fields=('kernel', 'slot'), name='allocation_once_per_kernel_and_slot'),
        ),
        migrations.AddIndex(
            model_name='launchrecord',
            index=models.Index(fields=['owner', '-is_pinned', '-created_at', '-id'], name='launch_newest'),
        ),
        migrations.AddIndex(
            model_name='publicapp',
            index=models.Index(fields=['closes_at'], name='public_app_by_end'),
        ),
        migrations.AddConstraint(
            model_name='publicapp',
            constraint=models.UniqueConstraint(fields=('session', 'service'), name='public_app_once'),
        ),
        migrations.AddIndex(
            model_name='schedulingrecord',
            index=models.Index(fields=['session', '-id'], name='compute_sch_session_122e19_idx'),
        ),
        migrations.AddConstraint(
            model_name='sessionfile',
            constraint=models.UniqueConstraint(fields=('session', 'path'), name='session_file_once_per_path'),
        ),
        migrations.AddIndex(
            model_name='sessionmount',
            index=models.Index(condition=models.Q(('released_at', None)), fields=['folder'], name='folder_in_use'),
        ),
        migrations.AddConstraint(
            model_name='sessionmount',
            constraint=models.UniqueConstraint(fields=('session', 'role', 'target'), name='mount_target_once_per_role'),
        ),
        migrations.AddIndex(
            model_name='sessionnotice',
            index=models.Index(fields=['owner', '-id'], name='notice_of_owner'),
        ),
        migrations.AddConstraint(
            model_name='sessionnotice',
            constraint=models.UniqueConstraint(fields=('session', 'kind'), name='notice_once_per_session_and_kind'),
        ),
        migrations.AddConstraint(
            model_name='unknownkernel',
            constraint=models.UniqueConstraint(fields=('agent', 'kernel_id', 'generation'), name='unknown_kernel_once_per_agent'),
        ),
        migrations.RunPython(leave_room, migrations.RunPython.noop),
    ]
