"""Kernels on agents that this database does not know."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.cluster.models import Agent


class UnknownKernel(models.Model):
    """A kernel that an agent has and the database does not know. Also a kernel that the agent refuses to remove.

    The kernel keeps running until an administrator adopts its session or orders its removal. The row exists as long as
    the agent reports the kernel.
    """

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    kernel_id = models.UUIDField()
    generation = models.PositiveIntegerField()
    is_running = models.BooleanField(default=True)
    is_kept = models.BooleanField(
        default=False, help_text=Message("Ended in the database, but its agent refuses the removal.")
    )
    manifest = models.JSONField(
        default=dict, blank=True, help_text=Message("Description signed by the portal at its start.")
    )
    session_id = models.UUIDField(null=True, blank=True, db_index=True)
    removal_at = models.DateTimeField(
        null=True, blank=True, help_text=Message("When an administrator ordered the removal.")
    )
    found_at = models.DateTimeField(default=timezone.now)
    mailed_at = models.DateTimeField(
        null=True, blank=True, help_text=Message("When superadmins were notified by mail.")
    )

    class Meta:
        ordering = ["found_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "kernel_id", "generation"], name="unknown_kernel_once_per_agent")
        ]

    def __str__(self) -> str:
        return f"kernel {self.kernel_id} on {self.agent}"

    @property
    def session_name(self) -> str:
        """The session's name; empty if unknown."""
        return str(self.manifest.get("name", ""))

    @property
    def owner(self) -> str:
        """The owner's e-mail address; empty if unknown."""
        return str(self.manifest.get("owner", ""))

    @property
    def hostname(self) -> str:
        """The kernel's host name; empty if unknown."""
        return str(self.manifest.get("hostname", ""))

    @property
    def slots(self) -> dict[str, str]:
        """The kernel's amounts as decimal strings; empty if unknown."""
        return dict(self.manifest.get("kernel_slots", {}))
