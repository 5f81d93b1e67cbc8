"""Kernels on agents that this database does not know."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from backendai.cluster.models import Agent
from backendai.core.messages import Message


class UnknownKernel(models.Model):
    """A kernel that an agent has and the database does not know, or that the agent keeps against the portal's word.

    It goes on until an administrator adopts its session or has it removed. The row lives as long as the agent tells
    of the kernel.
    """

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    kernel_id = models.UUIDField()
    generation = models.PositiveIntegerField()
    is_running = models.BooleanField(default=True)
    is_kept = models.BooleanField(
        default=False, help_text=Message("The database calls it over; its agent does not believe it.")
    )
    manifest = models.JSONField(default=dict, blank=True, help_text=Message("What the portal signed at its start."))
    session_id = models.UUIDField(null=True, blank=True, db_index=True)
    removal_at = models.DateTimeField(null=True, blank=True, help_text=Message("When an administrator had it removed."))
    found_at = models.DateTimeField(default=timezone.now)
    mailed_at = models.DateTimeField(null=True, blank=True, help_text=Message("When superadmins got a mail about it."))

    class Meta:
        ordering = ["found_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "kernel_id", "generation"], name="unknown_kernel_once_per_agent")
        ]

    def __str__(self) -> str:
        return f"kernel {self.kernel_id} on {self.agent}"

    @property
    def session_name(self) -> str:
        """The name of its session; empty: not known."""
        return str(self.manifest.get("name", ""))

    @property
    def owner(self) -> str:
        """The address of its session's owner; empty: not known."""
        return str(self.manifest.get("owner", ""))

    @property
    def hostname(self) -> str:
        """Its host name; empty: not known."""
        return str(self.manifest.get("hostname", ""))

    @property
    def slots(self) -> dict[str, str]:
        """What it holds, as decimal strings; empty: not known."""
        return dict(self.manifest.get("kernel_slots", {}))
