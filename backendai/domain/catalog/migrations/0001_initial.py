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
            name='Image',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=128, unique=True)),
                ('title', models.CharField(blank=True, max_length=128)),
                ('description', models.CharField(blank=True, max_length=255)),
                ('reference', models.CharField(max_length=255, unique=True)),
                ('process_reference', models.CharField(blank=True, help_text='Program for agents without a container engine.', max_length=255)),
                ('architecture', models.CharField(blank=True, max_length=32)),
                ('digest', models.CharField(blank=True, help_text='The exact content that new sessions start; empty: any.', max_length=128)),
                ('size_bytes', models.BigIntegerField(blank=True, null=True)),
                ('labels', models.JSONField(blank=True, default=dict)),
                ('services', models.CharField(blank=True, help_text="Overrides the image's label, for example jupyterlab:http:[8888],ring:tcp:9000.", max_length=1024)),
                ('minimum', models.JSONField(blank=True, default=dict, help_text='Smallest slots, as decimal strings.')),
                ('maximum', models.JSONField(blank=True, default=dict, help_text='Largest slots; slots that are not listed have no limit.')),
                ('is_enabled', models.BooleanField(default=True)),
                ('is_built_here', models.BooleanField(default=False, help_text='Built on this machine by build-images.')),
                ('is_customized', models.BooleanField(default=False, help_text='Saved from a session; visible to its owner only.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(blank=True, editable=False, help_text='Its owner deleted it; ended sessions still name it.', null=True)),
                ('domains', models.ManyToManyField(blank=True, help_text='Only these domains can use the image; empty: all.', related_name='images', to='accounts.domain')),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='images', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='ImageAlias',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=128, unique=True)),
                ('image', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='aliases', to='catalog.image')),
            ],
            options={
                'verbose_name_plural': 'image aliases',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Registry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=50, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,49}\\Z', 'Use letters, digits, dot, dash and underscore.')])),
                ('url', models.CharField(help_text='For example https://cr.example.org:5000.', max_length=255, validators=[django.core.validators.RegexValidator('^https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\\[[0-9A-Fa-f:]+\\])(:[0-9]{1,5})?\\Z', 'Write https:// and the host, with a port if need be, and nothing behind it.')])),
                ('kind', models.CharField(choices=[('docker', 'Docker Registry'), ('harbor', 'Harbor')], default='docker', max_length=16)),
                ('projects', models.CharField(blank=True, help_text='Projects or namespaces to scan, separated by spaces; empty: all.', max_length=1024)),
                ('repositories', models.TextField(blank=True, help_text='One per line, for a registry without a catalogue; empty: read its catalogue.')),
                ('other_hosts', models.CharField(blank=True, help_text='Additional hosts for tokens and blobs, separated by spaces: auth.example.org.', max_length=1024)),
                ('username', models.CharField(blank=True, max_length=128)),
                ('sealed_password', models.TextField(blank=True, editable=False)),
                ('push_username', models.CharField(blank=True, db_default='', help_text='An account that can push and delete; empty: the account above.', max_length=128)),
                ('sealed_push_password', models.TextField(blank=True, db_default='', editable=False)),
                ('verify_tls', models.BooleanField(default=True, help_text='If off, its certificate is not checked.')),
                ('enables_new', models.BooleanField(default=False, help_text='New images of it can be used at once.')),
                ('is_enabled', models.BooleanField(default=True, help_text='If off, it is not scanned.')),
                ('takes_pushes', models.BooleanField(db_default=False, default=False, help_text='Push customized images here, with this account.')),
                ('is_global', models.BooleanField(default=True, help_text='If on, all domains can use its images; if off, only the listed ones.')),
                ('scanned_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('domains', models.ManyToManyField(blank=True, related_name='registries', to='accounts.domain')),
            ],
            options={
                'verbose_name_plural': 'registries',
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='image',
            name='registry',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='images', to='catalog.registry'),
        ),
        migrations.CreateModel(
            name='ResourcePreset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('slots', models.JSONField(help_text="Slots as decimal strings or sizes: {'cpu': 2, 'mem': '4g'}.")),
                ('shm_bytes', models.BigIntegerField(blank=True, null=True)),
                ('rank', models.IntegerField(default=0)),
                ('resource_group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='presets', to='cluster.resourcegroup')),
            ],
            options={
                'ordering': ['rank', 'name'],
            },
        ),
        migrations.CreateModel(
            name='ImageOnAgent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(db_index=True, max_length=255)),
                ('digest', models.CharField(blank=True, max_length=128)),
                ('architecture', models.CharField(blank=True, max_length=32)),
                ('size_bytes', models.BigIntegerField(default=0)),
                ('labels', models.JSONField(default=dict)),
                ('is_unwanted', models.BooleanField(db_default=False, default=False, help_text='Saved from a session and deleted: the agent removes it.')),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='images', to='cluster.agent')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('is_unwanted', True)), fields=['agent'], name='image_to_remove')],
                'constraints': [models.UniqueConstraint(fields=('agent', 'reference'), name='image_once_per_agent')],
            },
        ),
        migrations.CreateModel(
            name='ImagePull',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('heard_at', models.DateTimeField(blank=True, help_text='When its agent last gave a word about it.', null=True)),
                ('status', models.CharField(choices=[('WAITING', 'waiting'), ('PULLING', 'pulling'), ('DONE', 'there'), ('FAILED', 'failed'), ('CANCELLED', 'cancelled')], default='WAITING', max_length=16)),
                ('progress', models.FloatField(blank=True, help_text='From 0 to 1; empty: not known.', null=True)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pulls', to='cluster.agent')),
                ('image', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pulls', to='catalog.image')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pulls', to='activity.backgroundjob')),
            ],
            options={
                'ordering': ['agent__name'],
                'indexes': [models.Index(condition=models.Q(('status__in', ['WAITING', 'PULLING'])), fields=['agent'], name='pull_not_over')],
                'constraints': [models.UniqueConstraint(fields=('job', 'agent'), name='pull_once_per_job')],
            },
        ),
        migrations.CreateModel(
            name='ImageShare',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('image', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='shares', to='catalog.image')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='shared_images', to='accounts.project')),
            ],
            options={
                'ordering': ['image', 'project'],
                'constraints': [models.UniqueConstraint(fields=('image', 'project'), name='image_shared_once')],
            },
        ),
        migrations.AddIndex(
            model_name='image',
            index=models.Index(condition=models.Q(('is_customized', True)), fields=['owner'], name='image_of_owner'),
        ),
        migrations.AddConstraint(
            model_name='resourcepreset',
            constraint=models.UniqueConstraint(fields=('name', 'resource_group'), name='preset_name_once_per_group'),
        ),
        migrations.AddConstraint(
            model_name='resourcepreset',
            constraint=models.UniqueConstraint(condition=models.Q(('resource_group', None)), fields=('name',), name='preset_name_once_for_all'),
        ),
    ]
