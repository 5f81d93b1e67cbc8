import backendai.domain.accounts.models.credentials
import backendai.domain.accounts.models.policies
import backendai.domain.accounts.scopes
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='User',
            fields=[
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254, unique=True)),
                ('full_name', models.CharField(blank=True, max_length=128)),
                ('role', models.CharField(choices=[('superadmin', 'superadmin'), ('admin', 'domain admin'), ('user', 'user')], default='user', max_length=16)),
                ('is_active', models.BooleanField(default=True)),
                ('share_weight', models.FloatField(default=1.0, help_text='Share of the resources that fair strategies aim at.', validators=[django.core.validators.MinValueValidator(0.01)])),
                ('language', models.CharField(blank=True, db_default='', default='', help_text='Of the pages. Empty: what the browser asks for.', max_length=8)),
                ('credentials_version', models.PositiveIntegerField(db_default=0, default=0, editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('purged_at', models.DateTimeField(blank=True, editable=False, help_text='Since when nobody is left of it.', null=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'ordering': ['email'],
            },
            bases=(backendai.domain.accounts.models.policies.HeldToPolicy, models.Model),
        ),
        migrations.CreateModel(
            name='Domain',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('is_active', models.BooleanField(default=True)),
                ('share_weight', models.FloatField(default=1.0, help_text='Share of the resources that fair strategies aim at.', validators=[django.core.validators.MinValueValidator(0.01)])),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['name'],
            },
            bases=(backendai.domain.accounts.models.policies.HeldToPolicy, models.Model),
        ),
        migrations.CreateModel(
            name='LoginCount',
            fields=[
                ('key', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('blocked_until', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='ResourcePolicy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('slots', models.JSONField(blank=True, default=dict, help_text='Maximum of running sessions together, as decimal strings.')),
                ('unnamed_slots', models.CharField(choices=[('unlimited', 'any amount of it'), ('limited', 'none of it')], default='unlimited', help_text='For slots that are not listed above.', max_length=16)),
                ('max_sessions', models.PositiveIntegerField(blank=True, help_text='Running sessions at once.', null=True)),
                ('max_pending_sessions', models.PositiveIntegerField(blank=True, null=True)),
                ('max_pending_slots', models.JSONField(blank=True, default=dict, help_text='Maximum of pending sessions together.')),
                ('max_priority', models.PositiveSmallIntegerField(blank=True, null=True, validators=[django.core.validators.MaxValueValidator(100)])),
                ('max_kernels_per_session', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('max_session_lifetime', models.DurationField(blank=True, null=True)),
                ('max_concurrent_logins', models.PositiveSmallIntegerField(blank=True, help_text='Of one user; one more ends the oldest.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('max_customized_images', models.PositiveSmallIntegerField(blank=True, help_text='Images that one user can save from sessions.', null=True)),
                ('max_system_sessions', models.PositiveSmallIntegerField(blank=True, help_text='File access sessions of one user at once.', null=True)),
                ('max_endpoints', models.PositiveIntegerField(blank=True, help_text='Endpoints that exist at the same time.', null=True)),
                ('max_replicas_per_endpoint', models.PositiveSmallIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('max_folders', models.PositiveIntegerField(blank=True, help_text='Folders of one user or one project.', null=True)),
                ('max_folder_bytes', models.BigIntegerField(blank=True, help_text='Sum of the limits of these folders.', null=True, validators=[django.core.validators.MinValueValidator(0)])),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'verbose_name_plural': 'resource policies',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='SeenSignature',
            fields=[
                ('signature', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('expires_at', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='BootstrapScript',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='bootstrap_script', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('content', models.TextField()),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
        migrations.CreateModel(
            name='AccessToken',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('hint', models.CharField(max_length=12)),
                ('scopes', models.JSONField(blank=True, default=backendai.domain.accounts.scopes.all_scopes)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='access_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.AddField(
            model_name='user',
            name='domain',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='users', to='accounts.domain'),
        ),
        migrations.CreateModel(
            name='Login',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('session_key', models.CharField(editable=False, max_length=40, unique=True)),
                ('method', models.CharField(max_length=32)),
                ('address', models.CharField(blank=True, max_length=45)),
                ('browser', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='logins', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('member', 'member'), ('admin', 'project admin')], default='member', max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('is_active', models.BooleanField(default=True)),
                ('share_weight', models.FloatField(default=1.0, help_text='Share of the resources that fair strategies aim at.', validators=[django.core.validators.MinValueValidator(0.01)])),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('domain', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='accounts.domain')),
                ('members', models.ManyToManyField(related_name='projects', through='accounts.Membership', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='accounts.resourcepolicy')),
            ],
            options={
                'ordering': ['name'],
            },
            bases=(backendai.domain.accounts.models.policies.HeldToPolicy, models.Model),
        ),
        migrations.AddField(
            model_name='membership',
            name='project',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='accounts.project'),
        ),
        migrations.CreateModel(
            name='Dotfile',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('path', models.CharField(max_length=255)),
                ('permission', models.CharField(default='644', help_text='Three octal digits.', max_length=3)),
                ('content', models.TextField(blank=True)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('domain', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='dotfiles', to='accounts.domain')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='dotfiles', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='dotfiles', to='accounts.project')),
            ],
            options={
                'ordering': ['path'],
            },
        ),
        migrations.CreateModel(
            name='PolicyDefault',
            fields=[
                ('holder', models.CharField(choices=[('key-pair', 'key pairs'), ('user', 'users'), ('project', 'projects'), ('domain', 'domains')], max_length=16, primary_key=True, serialize=False)),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='default_for', to='accounts.resourcepolicy')),
            ],
            options={
                'ordering': ['holder'],
            },
        ),
        migrations.CreateModel(
            name='KeyPair',
            fields=[
                ('access_key', models.CharField(default=backendai.domain.accounts.models.credentials.new_access_key, max_length=32, primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, max_length=64)),
                ('secret', models.TextField(blank=True, editable=False)),
                ('is_active', models.BooleanField(default=True)),
                ('is_main', models.BooleanField(default=False, help_text='Sessions launched in the browser count for it.')),
                ('rate_limit', models.PositiveIntegerField(default=10000, help_text='Signed requests in 15 minutes; 0: as many as they like.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='key_pairs', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='key_pairs', to='accounts.resourcepolicy')),
            ],
            options={
                'ordering': ['created_at'],
            },
            bases=(backendai.domain.accounts.models.policies.HeldToPolicy, models.Model),
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254)),
                ('full_name', models.CharField(blank=True, max_length=128)),
                ('role', models.CharField(choices=[('member', 'member'), ('admin', 'project admin')], default='member', max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='invitations_sent', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='accounts.project')),
                ('policy', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='invitations', to='accounts.resourcepolicy')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.AddField(
            model_name='domain',
            name='policy',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='domains', to='accounts.resourcepolicy'),
        ),
        migrations.AddField(
            model_name='user',
            name='policy',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='users', to='accounts.resourcepolicy'),
        ),
        migrations.CreateModel(
            name='SshKey',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('public_key', models.TextField()),
                ('fingerprint', models.CharField(db_index=True, max_length=64)),
                ('is_contested', models.BooleanField(db_default=False, default=False, editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='ssh_keys', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'SSH key',
                'ordering': ['created_at'],
            },
        ),
        migrations.CreateModel(
            name='Preference',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('value', models.JSONField()),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='preferences', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'name'), name='preference_once_per_user')],
            },
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('user', 'project'), name='membership_once'),
        ),
        migrations.AddConstraint(
            model_name='dotfile',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('domain', None), ('project', None), ('user__isnull', False)), models.Q(('domain', None), ('project__isnull', False), ('user', None)), models.Q(('domain__isnull', False), ('project', None), ('user', None)), _connector='OR'), name='dotfile_has_one_owner'),
        ),
        migrations.AddConstraint(
            model_name='dotfile',
            constraint=models.UniqueConstraint(fields=('user', 'path'), name='dotfile_once_per_user'),
        ),
        migrations.AddConstraint(
            model_name='dotfile',
            constraint=models.UniqueConstraint(fields=('project', 'path'), name='dotfile_once_per_project'),
        ),
        migrations.AddConstraint(
            model_name='dotfile',
            constraint=models.UniqueConstraint(fields=('domain', 'path'), name='dotfile_once_per_domain'),
        ),
        migrations.AddConstraint(
            model_name='project',
            constraint=models.UniqueConstraint(fields=('domain', 'name'), name='project_name_once_per_domain'),
        ),
        migrations.AddConstraint(
            model_name='keypair',
            constraint=models.UniqueConstraint(condition=models.Q(('is_main', True)), fields=('user',), name='one_main_key_pair'),
        ),
        migrations.AddConstraint(
            model_name='invitation',
            constraint=models.UniqueConstraint(condition=models.Q(('accepted_at', None), ('revoked_at', None)), fields=('email', 'project'), name='invitation_once_while_open'),
        ),
        migrations.AddConstraint(
            model_name='sshkey',
            constraint=models.UniqueConstraint(fields=('user', 'fingerprint'), name='ssh_key_once_per_user'),
        ),
        migrations.AddConstraint(
            model_name='sshkey',
            constraint=models.UniqueConstraint(condition=models.Q(('is_contested', False)), fields=('fingerprint',), name='ssh_key_once'),
        ),
    ]
