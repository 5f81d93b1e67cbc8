import backendai.domain.activity.message_field
import backendai.domain.activity.request_facts
import datetime
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('action', models.CharField(max_length=64)),
                ('target_type', models.CharField(max_length=32)),
                ('target_id', models.CharField(max_length=64)),
                ('details', models.JSONField(default=dict)),
                ('address', models.CharField(blank=True, db_default='', default=backendai.domain.activity.request_facts.client_address, max_length=45)),
                ('request_id', models.CharField(blank=True, db_default='', default=backendai.domain.activity.request_facts.request_id, max_length=12)),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'audit entries',
                'ordering': ['-at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='AccessNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject_type', models.CharField(max_length=16)),
                ('subject_id', models.CharField(max_length=64)),
                ('name', models.CharField(max_length=255)),
                ('message', backendai.domain.activity.message_field.MessageField()),
                ('invitation', models.BigIntegerField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('seen_at', models.DateTimeField(blank=True, help_text='When the person saw it under the bell.', null=True)),
                ('closed_at', models.DateTimeField(blank=True, help_text='When the person closed the card.', null=True)),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When the person dismissed it.', null=True)),
                ('mailed_at', models.DateTimeField(blank=True, help_text='When the mail was sent.', null=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
                'constraints': [models.UniqueConstraint(fields=('owner', 'subject_type', 'subject_id'), name='access_notice_once')],
            },
        ),
        migrations.CreateModel(
            name='BackgroundJob',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=32)),
                ('subject', models.CharField(max_length=255)),
                ('status', models.CharField(choices=[('RUNNING', 'running'), ('DONE', 'done'), ('FAILED', 'failed'), ('CANCELLED', 'cancelled')], default='RUNNING', max_length=16)),
                ('progress', models.FloatField(blank=True, help_text='Share from 0 to 1; empty: unknown.', null=True)),
                ('done', models.BigIntegerField(default=0, help_text='Number of completed units.')),
                ('total', models.BigIntegerField(blank=True, help_text='Number of all units; empty: unknown.', null=True)),
                ('claimed_at', models.DateTimeField(blank=True, editable=False, help_text='When a worker claimed the job.', null=True)),
                ('unit', models.CharField(blank=True, help_text='Unit of the numbers: images, agents, bytes.', max_length=16)),
                ('message', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('fix', backendai.domain.activity.message_field.MessageField(blank=True)),
                ('result', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now, help_text='When its worker last reported.')),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('deadline_at', models.DateTimeField(blank=True, help_text='The job fails at this time, even if it reports progress.', null=True)),
                ('silence_limit', models.DurationField(default=datetime.timedelta(seconds=600))),
                ('cancel_requested_at', models.DateTimeField(blank=True, null=True)),
                ('seen_at', models.DateTimeField(blank=True, help_text='When its owner saw the result.', null=True)),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When its owner dismissed it.', null=True)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
                'indexes': [models.Index(fields=['kind', 'subject', '-created_at'], name='activity_ba_kind_228876_idx'), models.Index(fields=['owner', '-created_at'], name='job_of_owner'), models.Index(condition=models.Q(('status', 'RUNNING')), fields=['updated_at'], name='job_running')],
            },
        ),
        migrations.CreateModel(
            name='NoticeChoice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=16)),
                ('card', models.BooleanField(default=True, help_text='Show a card on the open page.')),
                ('bell', models.BooleanField(default=True, help_text='Add an entry under the bell.')),
                ('email', models.BooleanField(default=False, help_text='Send an e-mail, if the site sends mail.')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notice_choices', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['user', 'kind'],
                'constraints': [models.UniqueConstraint(fields=('user', 'kind'), name='notice_choice_once_per_kind')],
            },
        ),
    ]
