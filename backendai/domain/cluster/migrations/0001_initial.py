import backendai.domain.activity.message_field
import backendai.domain.cluster.models.groups
import backendai.domain.cluster.models.idle
import backendai.scheduler.idle_kinds
import datetime
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


SEEDS = [  # name, kind, display name, unit, description, smallest step in thousandths, rank
    ("cpu", "count", "CPU", "", "Processor cores.", 1, 10),
    ("mem", "bytes", "Memory", "", "Main memory.", 1000, 20),
    ("cuda.device", "count", "GPU", "", "Whole GPUs.", 1000, 30),
    ("cuda.shares", "count", "GPU shares", "", "Fractions of GPUs that are shared.", 10, 40),
    ("rocm.device", "count", "AMD GPU", "", "Whole GPUs.", 1000, 50),
    ("mock.device", "count", "Mock device", "", "Devices for demonstrations.", 1000, 90),
    ("mock.shares", "count", "Mock shares", "", "Fractions of devices for demonstrations.", 10, 91),
]


def seed(apps, schema_editor):
    model = apps.get_model("cluster", "SlotType")
    names = ("name", "kind", "display_name", "unit", "description", "quantum", "rank")
    model.objects.bulk_create([model(**dict(zip(names, row, strict=True))) for row in SEEDS])


def name_this_database(apps, schema_editor):
    apps.get_model("cluster", "DatabaseEpoch").objects.create(tick=1)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z', 'Use lower case letters, digits and dashes.')])),
                ('status', models.CharField(choices=[('ALIVE', 'alive'), ('DRAINING', 'draining'), ('LOST', 'lost'), ('TERMINATED', 'terminated')], default='LOST', max_length=16)),
                ('schedulable', models.BooleanField(default=True)),
                ('backend', models.CharField(blank=True, max_length=32)),
                ('architecture', models.CharField(blank=True, max_length=32)),
                ('version', models.CharField(blank=True, max_length=32)),
                ('boot_id', models.CharField(blank=True, max_length=64)),
                ('gateway_url', models.CharField(blank=True, max_length=255)),
                ('capacity', models.JSONField(default=dict, help_text='Slots that kernels may take, as decimal strings.')),
                ('devices', models.JSONField(default=dict)),
                ('widest', models.JSONField(default=list, editable=False, help_text='What the largest single machines behind it have for one kernel; empty: it is one machine.')),
                ('slowness', models.PositiveSmallIntegerField(db_default=1, default=1, editable=False, help_text='The factor by which starts take longer on it, as it reports.')),
                ('notes', models.JSONField(default=list, help_text='What an administrator should know, with the fix.')),
                ('live', models.JSONField(blank=True, default=dict, help_text='Load of the agent at its last report: at (ISO time), cpu_pct (0-100), load (1 minute), mem_used, mem_total, disk_free and disk_total (bytes), devices: device id → slot, model, util_pct, mem_used, mem_total, numa, healthy, mock, note, kernels: kernel id → util_pct, mem_used. What is not known is null.')),
                ('engine', models.CharField(blank=True, help_text='Its container engine with the version.', max_length=64)),
                ('os_kernel', models.CharField(blank=True, help_text='The Linux kernel of the machine.', max_length=64)),
                ('low_disk', models.BooleanField(default=False, help_text='Free disk space is below the reserve: the agent pulls no images.')),
                ('fault', backendai.domain.activity.message_field.MessageField(blank=True, help_text='Why the agent cannot start sessions; empty: it can.')),
                ('capabilities', models.JSONField(editable=False, help_text='What it says it can do; null: it has not reported since an upgrade.', null=True)),
                ('images_digest', models.CharField(blank=True, max_length=64)),
                ('storage_digest', models.CharField(blank=True, editable=False, help_text='Digest of its last report on storage hosts; empty: none.', max_length=64)),
                ('unknown_kernels', models.PositiveIntegerField(default=0, editable=False, help_text='Kernels on the agent that are not in this database.')),
                ('unknown_running', models.PositiveIntegerField(default=0, editable=False, help_text='Running unknown kernels: while there are any, the agent gets no new sessions.')),
                ('reserved', models.JSONField(blank=True, default=dict, help_text='Amounts that the agent reserves for its machine.')),
                ('max_kernels', models.PositiveIntegerField(blank=True, help_text="Empty: the group's setting.", null=True)),
                ('drain_started_at', models.DateTimeField(blank=True, help_text='Since when it takes no new sessions.', null=True)),
                ('drain_ends_at', models.DateTimeField(blank=True, help_text='When what still runs on it is ended.', null=True)),
                ('drain_kernels', models.PositiveIntegerField(default=0, help_text='How many kernels ran when draining began.')),
                ('revoked_at', models.DateTimeField(blank=True, help_text='Since when its credential is refused.', null=True)),
                ('token_digest', models.CharField(max_length=64, unique=True)),
                ('broker_digest', models.CharField(blank=True, editable=False, help_text='SHA-256 of its password at the broker; empty: no account.', max_length=64)),
                ('last_seen_at', models.DateTimeField(blank=True, null=True)),
                ('lost_at', models.DateTimeField(blank=True, null=True)),
                ('returned_at', models.DateTimeField(blank=True, help_text='When it was last found again after a loss.', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Announcement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.CharField(help_text='Plain text; addresses become links.', max_length=500)),
                ('tone', models.CharField(choices=[('info', 'information'), ('warning', 'warning'), ('danger', 'trouble')], default='info', max_length=16)),
                ('starts_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ends_at', models.DateTimeField(blank=True, help_text='Empty: until it is deleted.', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['-starts_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='DatabaseEpoch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('lineage', models.UUIDField(default=uuid.uuid4)),
                ('tick', models.PositiveBigIntegerField(default=0)),
                ('mark', models.CharField(blank=True, help_text="This portal's last mark in the broker.", max_length=32)),
                ('strangers', models.PositiveSmallIntegerField(default=0, help_text="Passes in a row that found another portal's mark in the broker.")),
            ],
        ),
        migrations.CreateModel(
            name='IdleChecker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('description', models.CharField(blank=True, max_length=255)),
                ('kind', models.CharField(choices=backendai.scheduler.idle_kinds.kind_choices, default='network-timeout', max_length=24)),
                ('is_active', models.BooleanField(default=True, help_text='If off, it neither warns nor ends sessions.')),
                ('limit', models.DurationField(default=datetime.timedelta(seconds=3600), help_text='Maximum lifetime, maximum time without traffic, or averaging time of utilization.')),
                ('grace', models.DurationField(default=datetime.timedelta(0), help_text='Sessions younger than this are never ended.')),
                ('warning', models.DurationField(default=datetime.timedelta(seconds=900), help_text='Time between the warning and the end.')),
                ('thresholds', models.JSONField(blank=True, default=dict, help_text='Slots with percentages; below them a slot counts as unused.')),
                ('match', models.CharField(choices=[('all', 'all of them are below'), ('any', 'any of them is below')], default='all', max_length=8)),
                ('session_types', models.JSONField(default=backendai.domain.cluster.models.idle.default_types)),
                ('extension', models.DurationField(default=datetime.timedelta(seconds=3600), help_text='Extension per click of the owner.')),
                ('max_extensions', models.PositiveSmallIntegerField(default=3, help_text='Maximum extensions by the owner; 0: none.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'ordering': ['kind', 'name'],
            },
        ),
        migrations.CreateModel(
            name='PassLease',
            fields=[
                ('name', models.CharField(max_length=96, primary_key=True, serialize=False)),
                ('owner', models.CharField(blank=True, max_length=64)),
                ('until', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Reachability',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('since', models.DateTimeField()),
                ('noted_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='ResourceGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z', 'Use lower case letters, digits and dashes.')])),
                ('description', models.CharField(blank=True, max_length=255)),
                ('is_active', models.BooleanField(default=True)),
                ('is_default', models.BooleanField(default=False, help_text='Used when a launch names no group. Only one group can be the default.')),
                ('is_public', models.BooleanField(default=True, help_text='If on, every project can use the group; if off, only the listed ones.')),
                ('session_defaults', models.JSONField(blank=True, default=dict, help_text='Defaults of launches.')),
                ('sequence', models.CharField(default=backendai.domain.cluster.models.groups.default_sequence, help_text='Which session starts next.', max_length=64)),
                ('selection', models.CharField(default='concentrated', help_text='On which agent it starts.', max_length=64)),
                ('strategy_options', models.JSONField(blank=True, default=dict, help_text='Options of the strategies chosen above.')),
                ('slot_order', models.JSONField(blank=True, default=list, help_text='Slots, the most precious first; empty: default order.')),
                ('retries_to_skip', models.PositiveIntegerField(default=0, help_text='Failed attempts after which others can overtake a session that does not fit; 0: never.')),
                ('overtaking_limit', models.DurationField(default=datetime.timedelta(days=1), help_text='A session that was overtaken for this time gets its strict place back.')),
                ('backfill', models.BooleanField(default=False, help_text='Sessions that end before the first one could start can overtake it.')),
                ('usage_half_life', models.DurationField(default=datetime.timedelta(days=7), help_text='Fair share: time after which past use counts half.')),
                ('allowed_session_types', models.JSONField(default=backendai.domain.cluster.models.groups.default_session_types)),
                ('max_kernels_per_agent', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                ('device_allocation', models.CharField(choices=[('evenly', 'spread kernels over the devices'), ('fill', 'fill one device after the other')], default='evenly', max_length=16)),
                ('allow_fragmentation', models.BooleanField(default=True, help_text='Combine fractions of several devices if no single device has enough.')),
                ('next_agent', models.CharField(blank=True, editable=False, help_text='Where round-robin goes on.', max_length=63)),
                ('tries_counted_at', models.DateTimeField(editable=False, help_text='When tries of its sessions were counted last.', null=True)),
                ('pending_timeout', models.DurationField(default=datetime.timedelta(0), help_text='Longer pending sessions are cancelled; 0: never.')),
                ('give_up_after', models.PositiveIntegerField(default=0, help_text='Scheduling attempts before a session is given up; 0: unlimited.')),
                ('on_give_up', models.CharField(choices=[('keep', 'say so, and go on trying'), ('lower-priority', 'lower the priority by 10'), ('cancel', 'cancel the session')], default='keep', max_length=16)),
                ('pull_timeout', models.DurationField(default=datetime.timedelta(seconds=1800))),
                ('create_timeout', models.DurationField(default=datetime.timedelta(seconds=120))),
                ('terminate_timeout', models.DurationField(default=datetime.timedelta(seconds=60))),
                ('agent_lost_grace', models.DurationField(default=datetime.timedelta(seconds=300))),
                ('max_retries', models.PositiveSmallIntegerField(default=3, help_text='Failed starts before a session ends in an error.')),
                ('app_domain', models.CharField(blank=True, help_text="Apps of sessions live under this domain; empty: under the site's.", max_length=180)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('domains', models.ManyToManyField(blank=True, related_name='resource_groups', to='accounts.domain')),
                ('key_pairs', models.ManyToManyField(blank=True, related_name='resource_groups', to='accounts.keypair')),
                ('projects', models.ManyToManyField(blank=True, related_name='resource_groups', to='accounts.project')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='JoinToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('hint', models.CharField(blank=True, help_text='How its text begins.', max_length=16)),
                ('name_prefix', models.CharField(blank=True, help_text="Required prefix of the agent's name.", max_length=63)),
                ('is_reusable', models.BooleanField(default=False)),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='join_tokens', to='cluster.agent')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('resource_group', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='join_tokens', to='cluster.resourcegroup')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='IdleBinding',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('applies', models.BooleanField(default=True)),
                ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='idle_bindings', to='accounts.project')),
                ('checker', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='bindings', to='cluster.idlechecker')),
                ('resource_group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='idle_bindings', to='cluster.resourcegroup')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.AddField(
            model_name='agent',
            name='resource_group',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='agents', to='cluster.resourcegroup'),
        ),
        migrations.CreateModel(
            name='SiteSetting',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('value', models.JSONField()),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('changed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='SlotType',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True, validators=[django.core.validators.RegexValidator('^[a-z][a-z0-9]*([.\\-_][a-z0-9]+)*\\Z', 'Use a name such as cpu or cuda.device.')])),
                ('kind', models.CharField(choices=[('count', 'a number'), ('bytes', 'a size in bytes'), ('unique', 'whole devices, each of its own kind')], default='count', max_length=16)),
                ('display_name', models.CharField(max_length=64)),
                ('unit', models.CharField(blank=True, help_text='Shown after the number, for example cores.', max_length=16)),
                ('description', models.CharField(blank=True, max_length=255)),
                ('quantum', models.BigIntegerField(default=1, help_text='The step of amounts, in thousandths of the unit.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(4611686018427387904)])),
                ('rank', models.PositiveSmallIntegerField(default=100, help_text='Lower numbers come first.')),
                ('is_enabled', models.BooleanField(default=True, help_text='Launches can request it.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('offered_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='cluster.agent')),
            ],
            options={
                'ordering': ['rank', 'name'],
            },
        ),
        migrations.AddConstraint(
            model_name='resourcegroup',
            constraint=models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='one_default_resource_group'),
        ),
        migrations.AddConstraint(
            model_name='idlebinding',
            constraint=models.UniqueConstraint(fields=('checker', 'resource_group'), name='idle_binding_once_per_group'),
        ),
        migrations.AddConstraint(
            model_name='idlebinding',
            constraint=models.UniqueConstraint(fields=('checker', 'project'), name='idle_binding_once_per_project'),
        ),
        migrations.AddConstraint(
            model_name='idlebinding',
            constraint=models.UniqueConstraint(condition=models.Q(('project', None), ('resource_group', None)), fields=('checker',), name='idle_binding_once_for_the_site'),
        ),
        migrations.AddConstraint(
            model_name='idlebinding',
            constraint=models.CheckConstraint(condition=models.Q(('resource_group', None), ('project', None), _connector='OR'), name='idle_binding_names_one_place'),
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
        migrations.RunPython(name_this_database, migrations.RunPython.noop),
    ]
