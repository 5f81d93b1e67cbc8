"""With whom the owners of sessions share them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from backendai.domain.accounts.models import Project
from backendai.domain.compute.querysets import ShareQuerySet
from backendai.domain.compute.status import ShareRight


class SessionShare(models.Model):
    """The right of one person, or of the members of one project, to a session of somebody else.

    A row alone opens nothing: ``ShareQuerySet.of`` returns those that hold now.
    """

    session = models.ForeignKey(
        "compute.ComputeSession", on_delete=models.CASCADE, related_name="shares", db_index=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="shared_sessions", null=True, blank=True
    )
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="shared_sessions", null=True, blank=True
    )
    right = models.CharField(max_length=8, choices=ShareRight, default=ShareRight.VIEW)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    used_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, related_name="+", null=True, editable=False, db_index=False
    )
    used_at = models.DateTimeField(null=True, editable=False)

    objects = ShareQuerySet.as_manager()

    class Meta:
        ordering = ["created_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["session", "user"], name="session_shared_once_with_user"),
            models.UniqueConstraint(fields=["session", "project"], name="session_shared_once_with_project"),
            models.CheckConstraint(
                condition=Q(user=None, project__isnull=False) | Q(user__isnull=False, project=None),
                name="session_shared_with_one",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} with {self.user_id or self.project_id}"
