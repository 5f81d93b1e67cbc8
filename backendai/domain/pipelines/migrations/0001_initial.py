import backendai.domain.activity.message_field
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('compute', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=40)),
                ('kind', models.CharField(choices=[('array', 'array'), ('pipeline', 'pipeline')], max_length=8)),
                ('status', models.CharField(choices=[('RUNNING', 'running'), ('PAUSED', 'paused'), ('SUCCEEDED', 'succeeded'), ('FAILED', 'failed'), ('CANCELLED', 'cancelled')], default='RUNNING', max_length=16)),
                ('text', models.TextField(help_text='The document as sent, without secret values.')),
                ('template', models.CharField(blank=True, help_text='The version of the template; empty: none.', max_length=128)),
                ('digest', models.CharField(max_length=64)),
                ('parameters', models.JSONField(default=dict)),
                ('size', models.PositiveIntegerField(help_text='Number of elements of all steps.')),
                ('at_once', models.PositiveIntegerField(default=0, help_text='The most concurrent sessions; 0: no limit.')),
                ('on_failure', models.CharField(default='continue', max_length=8)),
                ('workspace', models.JSONField(default=dict, help_text='The folder for the output of steps; empty: none.')),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True, help_text='Why the run waits, or ended as it did.')),
                ('version', models.PositiveBigIntegerField(default=0)),
                ('idempotency_key', models.CharField(blank=True, editable=False, max_length=128, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ended_at', models.DateTimeField(blank=True, help_text='When its last element ended.', null=True)),
                ('seen_at', models.DateTimeField(blank=True, help_text='When its owner saw its end under the bell.', null=True)),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When its owner dismissed the notification.', null=True)),
                ('mailed_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='accounts.project')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Step',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=32)),
                ('place', models.PositiveIntegerField(help_text='Its position in the document, from 0.')),
                ('request', models.JSONField(editable=False, help_text='The launch request of its elements, without secret values.')),
                ('secrets', models.JSONField(default=dict, editable=False)),
                ('size', models.PositiveIntegerField()),
                ('values', models.JSONField(default=list, help_text='Variables of each element by its position; empty: none.')),
                ('at_once', models.PositiveIntegerField(default=0)),
                ('probe', models.PositiveIntegerField(default=0)),
                ('give_up_after', models.PositiveIntegerField(default=0)),
                ('retry', models.JSONField(default=dict)),
                ('is_finally', models.BooleanField(default=False)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True, help_text='Why none of its elements can be launched now.')),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='pipelines.run')),
            ],
            options={
                'ordering': ['place'],
            },
        ),
        migrations.CreateModel(
            name='Edge',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('when', models.CharField(max_length=8)),
                ('on', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='pipelines.step')),
                ('step', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='edges', to='pipelines.step')),
            ],
        ),
        migrations.CreateModel(
            name='Task',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('place', models.PositiveIntegerField(help_text='Its position in the step, from 0.')),
                ('index', models.PositiveIntegerField(help_text='Its number for programs.')),
                ('state', models.CharField(choices=[('WAITING', 'waiting'), ('RELEASED', 'launched'), ('SUCCEEDED', 'succeeded'), ('FAILED', 'failed'), ('SKIPPED', 'skipped'), ('CANCELLED', 'cancelled')], default='WAITING', max_length=16)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('code', models.CharField(blank=True, help_text='Code of the reason for its state.', max_length=64)),
                ('cause', models.CharField(blank=True, help_text='The step that caused its state.', max_length=64)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('growths', models.PositiveSmallIntegerField(default=0, help_text='How many times its request was increased.')),
                ('is_excused', models.BooleanField(default=False, help_text='Ignored, as somebody has retried other elements since its failure.')),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('session', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='run_task', to='compute.computesession')),
                ('step', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='pipelines.step')),
            ],
            options={
                'ordering': ['place'],
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('session', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='run_attempt', to='compute.computesession')),
                ('task', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='pipelines.task')),
            ],
            options={
                'ordering': ['number'],
            },
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['owner', '-created_at'], name='run_of_owner'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('ended_at', None)), fields=['created_at'], name='run_unfinished'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('owner', 'idempotency_key'), name='run_once_per_idempotency_key'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(fields=('run', 'name'), name='step_once_per_run'),
        ),
        migrations.AddConstraint(
            model_name='edge',
            constraint=models.UniqueConstraint(fields=('step', 'on'), name='edge_once'),
        ),
        migrations.AddIndex(
            model_name='task',
            index=models.Index(fields=['step', 'state', 'place'], name='task_state_of_step'),
        ),
        migrations.AddConstraint(
            model_name='task',
            constraint=models.UniqueConstraint(fields=('step', 'index'), name='task_once_per_step'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('task', 'number'), name='attempt_once_per_task'),
        ),
    ]
