import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('compute', '0001_initial'),
        ('storage', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AppGrant',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('entry', models.UUIDField(editable=False, unique=True)),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('generation', models.PositiveIntegerField()),
                ('service', models.CharField(max_length=32)),
                ('port', models.PositiveIntegerField()),
                ('host', models.CharField(max_length=255)),
                ('login', models.CharField(blank=True, editable=False, max_length=64)),
                ('token', models.CharField(blank=True, editable=False, max_length=64)),
                ('key_pair', models.CharField(blank=True, default='', editable=False, max_length=32)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(db_index=True)),
                ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='app_grants', to='compute.kernel')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='app_grants', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='FilesGrant',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('entry', models.UUIDField(editable=False, unique=True)),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('host', models.CharField(max_length=255)),
                ('portal', models.CharField(blank=True, help_text='The host of the portal whose pages may use it.', max_length=255)),
                ('login', models.CharField(blank=True, editable=False, max_length=64)),
                ('token', models.CharField(blank=True, editable=False, max_length=64)),
                ('key_pair', models.CharField(blank=True, default='', editable=False, max_length=32)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(db_index=True)),
                ('folder', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='files_grants', to='storage.folder')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='files_grants', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at'],
                'indexes': [models.Index(fields=['host', 'expires_at'], name='files_grants_of_host')],
            },
        ),
    ]
