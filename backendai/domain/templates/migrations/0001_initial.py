import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Template',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('private', 'Private'), ('project', 'Project'), ('domain', 'Domain'), ('public', 'Everyone')], max_length=8)),
                ('kind', models.CharField(default='session', help_text='What its documents launch.', max_length=16)),
                ('name', models.CharField(max_length=64)),
                ('title', models.CharField(blank=True, max_length=128)),
                ('description', models.CharField(blank=True, max_length=500)),
                ('icon', models.CharField(default='stack-2', max_length=32)),
                ('deprecated', models.CharField(blank=True, max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('domain', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='templates', to='accounts.domain')),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='templates', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='session_templates', to='accounts.project')),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.CreateModel(
            name='TemplateVersion',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('document', models.JSONField()),
                ('text', models.TextField()),
                ('digest', models.CharField(max_length=64)),
                ('note', models.CharField(blank=True, max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('author', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('template', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='templates.template')),
            ],
            options={
                'ordering': ['-number'],
            },
        ),
        migrations.AddField(
            model_name='template',
            name='current',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='templates.templateversion'),
        ),
        migrations.AddConstraint(
            model_name='templateversion',
            constraint=models.UniqueConstraint(fields=('template', 'number'), name='template_version_once'),
        ),
        migrations.AddConstraint(
            model_name='template',
            constraint=models.UniqueConstraint(condition=models.Q(('scope', 'private')), fields=('owner', 'name'), name='template_own_name'),
        ),
        migrations.AddConstraint(
            model_name='template',
            constraint=models.UniqueConstraint(condition=models.Q(('scope', 'project')), fields=('project', 'name'), name='template_project_name'),
        ),
        migrations.AddConstraint(
            model_name='template',
            constraint=models.UniqueConstraint(condition=models.Q(('scope', 'domain')), fields=('domain', 'name'), name='template_domain_name'),
        ),
        migrations.AddConstraint(
            model_name='template',
            constraint=models.UniqueConstraint(condition=models.Q(('scope', 'public')), fields=('name',), name='template_public_name'),
        ),
        migrations.AddConstraint(
            model_name='template',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('domain', None), ('owner__isnull', False), ('project', None), ('scope', 'private')), models.Q(('domain', None), ('owner', None), ('project__isnull', False), ('scope', 'project')), models.Q(('domain__isnull', False), ('owner', None), ('project', None), ('scope', 'domain')), models.Q(('domain', None), ('owner', None), ('project', None), ('scope', 'public')), _connector='OR'), name='template_belongs_to_its_scope'),
        ),
    ]
