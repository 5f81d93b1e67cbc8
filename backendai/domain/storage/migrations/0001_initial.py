import backendai.domain.activity.message_field
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
        ('activity', '0001_initial'),
        ('cluster', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Folder',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9._][A-Za-z0-9._-]{0,63}\\Z', "A folder name has 1 to 64 letters, digits, '.', '_' or '-', and does not begin with '-'.")])),
                ('usage', models.CharField(choices=[('general', 'general data'), ('model', 'models to serve')], default='general', max_length=16)),
                ('member_rights', models.CharField(choices=[('none', 'no access'), ('view', 'can view'), ('edit', 'can edit')], default='edit', help_text="Rights of the project's members to a project folder.", max_length=8)),
                ('is_cloneable', models.BooleanField(default=False, help_text='On: everyone who can view the folder may clone it.')),
                ('linked_path', models.CharField(blank=True, help_text='An existing path of the host, mounted read-only; empty: an ordinary folder.', max_length=255)),
                ('status', models.CharField(choices=[('CREATING', 'creating'), ('READY', 'ready'), ('TRASHED', 'in the trash'), ('DELETING', 'deleting'), ('DELETED', 'deleted'), ('ERROR', 'error')], default='CREATING', editable=False, max_length=16)),
                ('status_message', backendai.domain.activity.message_field.MessageField(blank=True, editable=False)),
                ('version', models.PositiveIntegerField(default=1, editable=False)),
                ('limit_bytes', models.BigIntegerField(blank=True, help_text='Limit in bytes; empty: unlimited.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('used_bytes', models.BigIntegerField(blank=True, editable=False, null=True)),
                ('used_files', models.BigIntegerField(blank=True, editable=False, null=True)),
                ('measured_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('measure_asked_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('nearly_full_at', models.DateTimeField(blank=True, editable=False, help_text='When the owner was notified that it is nearly full.', null=True)),
                ('needs_push', models.BooleanField(default=False, editable=False, help_text='Name, owner or limit are not yet sent to the file server.')),
                ('idempotency_key', models.CharField(blank=True, editable=False, max_length=128, null=True)),
                ('request_digest', models.CharField(blank=True, editable=False, max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now, help_text='When its status last changed.')),
                ('trashed_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('cloned_from', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='clones', to='storage.folder')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='folders', to='accounts.project')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='folders', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='FolderFill',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('taken_by', models.CharField(blank=True, max_length=128)),
                ('taken_until', models.DateTimeField(blank=True, null=True)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('sent_bytes', models.BigIntegerField(default=0, help_text='Bytes copied at the last report of the last worker.')),
                ('is_over', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('folder', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='fill', to='storage.folder')),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='activity.backgroundjob')),
            ],
            options={
                'ordering': ['created_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='StorageHost',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=32, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\\Z', "A host name has 1 to 32 small letters, digits or '-'.")])),
                ('title', models.CharField(blank=True, max_length=128)),
                ('address', models.CharField(help_text='Address of its file server, such as http://127.0.0.1:8093.', max_length=255)),
                ('public_address', models.CharField(blank=True, help_text='Address of its file server for scripts; empty: only through the portal.', max_length=255)),
                ('is_enabled', models.BooleanField(default=True, help_text='On: new folders can be created here.')),
                ('is_default', models.BooleanField(default=False)),
                ('quota_mode', models.CharField(choices=[('enforced', 'enforced by the file system'), ('measured', 'measured')], default='measured', editable=False, max_length=16)),
                ('total_bytes', models.BigIntegerField(blank=True, editable=False, null=True)),
                ('free_bytes', models.BigIntegerField(blank=True, editable=False, null=True)),
                ('answered_at', models.DateTimeField(blank=True, editable=False, help_text='When its file server last answered.', null=True)),
                ('fault', backendai.domain.activity.message_field.MessageField(blank=True, editable=False, help_text='Why its file server does not work; empty: it works.')),
                ('fault_since', models.DateTimeField(blank=True, editable=False, help_text='When the fault was seen first.', null=True)),
                ('unknown_folders', models.JSONField(blank=True, default=list, editable=False, help_text='Number of directories without a folder in the database.')),
                ('listed_at', models.DateTimeField(blank=True, editable=False, help_text='When its directories were last listed.', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='one_default_host')],
            },
        ),
        migrations.AddField(
            model_name='folder',
            name='host',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='folders', to='storage.storagehost'),
        ),
        migrations.CreateModel(
            name='FolderGrant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rights', models.CharField(choices=[('none', 'no access'), ('view', 'can view'), ('edit', 'can edit')], max_length=8)),
                ('kind', models.CharField(choices=[('invitation', 'invitation'), ('override', "override of the project's default")], default='invitation', max_length=16)),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('folder', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='storage.folder')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='folder_grants', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['folder', 'user'],
                'constraints': [models.UniqueConstraint(fields=('folder', 'user'), name='folder_granted_once')],
            },
        ),
        migrations.CreateModel(
            name='FolderSize',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('used_bytes', models.BigIntegerField()),
                ('used_files', models.BigIntegerField()),
                ('folder', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sizes', to='storage.folder')),
            ],
            options={
                'ordering': ['folder', 'day'],
                'constraints': [models.UniqueConstraint(fields=('folder', 'day'), name='folder_measured_once_a_day')],
            },
        ),
        migrations.CreateModel(
            name='HostOnAgent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fault', backendai.domain.activity.message_field.MessageField(blank=True, help_text='Why kernels cannot mount its folders; empty: they can.')),
                ('can_read_only', models.BooleanField(default=True, help_text='The agent can enforce read-only mounts.')),
                ('can_sub_path', models.BooleanField(default=True)),
                ('free_bytes', models.BigIntegerField(blank=True, null=True)),
                ('reported_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='storage_hosts', to='cluster.agent')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='on_agents', to='storage.storagehost')),
            ],
            options={
                'ordering': ['host', 'agent'],
                'constraints': [models.UniqueConstraint(fields=('host', 'agent'), name='storage_host_once_per_agent')],
            },
        ),
        migrations.AddIndex(
            model_name='folder',
            index=models.Index(condition=models.Q(('status__in', ['CREATING', 'TRASHED', 'DELETING', 'ERROR'])), fields=['status', 'changed_at'], name='folder_in_transition'),
        ),
        migrations.AddConstraint(
            model_name='folder',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('project__isnull', False), ('user__isnull', True)), models.Q(('project__isnull', True), ('user__isnull', False)), _connector='OR'), name='folder_has_one_owner'),
        ),
        migrations.AddConstraint(
            model_name='folder',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['CREATING', 'READY', 'ERROR']), ('user__isnull', False)), fields=('user', 'name'), name='folder_name_once_per_user'),
        ),
        migrations.AddConstraint(
            model_name='folder',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', False), ('status__in', ['CREATING', 'READY', 'ERROR'])), fields=('project', 'name'), name='folder_name_once_per_project'),
        ),
        migrations.AddConstraint(
            model_name='folder',
            constraint=models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('created_by', 'idempotency_key'), name='folder_once_per_idempotency_key'),
        ),
    ]
