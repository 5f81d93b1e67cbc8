"""SSH keys, dotfiles and bootstrap scripts, which people have in all their sessions."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.base.paths.home_paths import LONGEST_PATH
from backendai.domain.accounts.models.people import Domain, Project, User
from backendai.domain.accounts.querysets import SshKeyQuerySet


class SshKey(models.Model):
    """A public key with which its user connects by SSH.

    ``public_key`` has type and content, without a comment. ``is_contested``: several accounts registered it before that
    was refused. It gives no access until one of them proves that it holds the private key.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="ssh_keys")
    name = models.CharField(max_length=64)
    public_key = models.TextField()
    fingerprint = models.CharField(max_length=64, db_index=True)
    is_contested = models.BooleanField(default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(default=timezone.now)

    objects = SshKeyQuerySet.as_manager()

    class Meta:
        ordering = ["created_at"]
        verbose_name = Message("SSH key")
        constraints = [
            models.UniqueConstraint(fields=["user", "fingerprint"], name="ssh_key_once_per_user"),
            models.UniqueConstraint(fields=["fingerprint"], condition=Q(is_contested=False), name="ssh_key_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint})"


class Dotfile(models.Model):
    """A file of a user, project or domain that is copied into the home of its sessions."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="dotfiles")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="dotfiles")
    domain = models.ForeignKey(Domain, on_delete=models.CASCADE, null=True, blank=True, related_name="dotfiles")
    path = models.CharField(max_length=LONGEST_PATH)
    permission = models.CharField(max_length=3, default="644", help_text=Message("Three octal digits."))
    content = models.TextField(blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["path"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, project=None, domain=None)
                | Q(user=None, project__isnull=False, domain=None)
                | Q(user=None, project=None, domain__isnull=False),
                name="dotfile_has_one_owner",
            ),
            models.UniqueConstraint(fields=["user", "path"], name="dotfile_once_per_user"),
            models.UniqueConstraint(fields=["project", "path"], name="dotfile_once_per_project"),
            models.UniqueConstraint(fields=["domain", "path"], name="dotfile_once_per_domain"),
        ]

    def __str__(self) -> str:
        return self.path


class BootstrapScript(models.Model):
    """A script that runs once in each kernel of its user, before the user's other programs."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="bootstrap_script")
    content = models.TextField()
    updated_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"bootstrap script of {self.user_id}"
