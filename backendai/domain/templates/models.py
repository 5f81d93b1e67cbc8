"""Templates and their versions."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.base.core.errors import PlatformError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, Project
from backendai.domain.templates.querysets import TemplateQuerySet

SESSION = "session"  # the kind of a template that launches sessions
ICONS = ("stack-2", "terminal-2", "player-play", "cpu", "chart-bar", "database", "network", "package", "box", "tool")


class Template(models.Model):
    """A request to launch sessions or a run, kept under a name. ``current``: the version that a launch takes who names
    none.

    ``deprecated``: why it should not be used any more; empty: it may be.
    """

    class Scope(models.TextChoices):
        PRIVATE = "private", Message("Private")
        PROJECT = "project", Message("Project")
        DOMAIN = "domain", Message("Domain")
        PUBLIC = "public", Message("Everyone")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    scope = models.CharField(max_length=8, choices=Scope)
    kind = models.CharField(max_length=16, default=SESSION, help_text="What its documents launch.")
    name = models.CharField(max_length=64)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="templates"
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="session_templates"
    )
    domain = models.ForeignKey(Domain, null=True, blank=True, on_delete=models.CASCADE, related_name="templates")
    title = models.CharField(max_length=128, blank=True)
    description = models.CharField(max_length=500, blank=True)
    icon = models.CharField(max_length=32, default=ICONS[0])
    current = models.ForeignKey(
        "TemplateVersion", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    deprecated = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TemplateQuerySet.as_manager()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], condition=Q(scope="private"), name="template_own_name"),
            models.UniqueConstraint(
                fields=["project", "name"], condition=Q(scope="project"), name="template_project_name"
            ),
            models.UniqueConstraint(
                fields=["domain", "name"], condition=Q(scope="domain"), name="template_domain_name"
            ),
            models.UniqueConstraint(fields=["name"], condition=Q(scope="public"), name="template_public_name"),
            models.CheckConstraint(
                condition=Q(scope="private", owner__isnull=False, project=None, domain=None)
                | Q(scope="project", project__isnull=False, owner=None, domain=None)
                | Q(scope="domain", domain__isnull=False, owner=None, project=None)
                | Q(scope="public", owner=None, project=None, domain=None),
                name="template_belongs_to_its_scope",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @property
    def launches_sessions(self) -> bool:
        """Whether it launches sessions, not a run."""
        return self.kind == SESSION

    @property
    def label(self) -> str:
        """What pages call it."""
        return self.title or self.name

    def reference(self, number: int) -> str:
        """Return by what sessions name a version of it."""
        return f"{self}@{number}"


class TemplateVersion(models.Model):
    """One document of a template; it is never changed. ``text``: as it was written, with its comments."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    template = models.ForeignKey(Template, on_delete=models.CASCADE, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    document = models.JSONField()
    text = models.TextField()
    digest = models.CharField(max_length=64)
    note = models.CharField(max_length=255, blank=True)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["template", "number"], name="template_version_once")]

    def __str__(self) -> str:
        return self.template.reference(self.number)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write it once; raises a PlatformError for a second time."""
        if not self._state.adding:
            raise PlatformError("A version of a template does not change.", code="immutable")
        super().save(*args, **kwargs)
