"""What is known about the lengths of sessions, and the forecasts of their starts.

``learning`` writes lengths, ``foreseeing`` and ``scoring`` write forecasts.
"""

from __future__ import annotations

from django.db import models

from backendai.base.core.messages import Message
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession


class RunLengths(models.Model):
    """How many sessions of one group of sessions ran how long; ``counts`` has a number for each bucket of lengths.

    ``key``: a digest of what the sessions have in common (owner, image, command, resource group, type).
    """

    key = models.CharField(max_length=32, primary_key=True)
    counts = models.JSONField(default=list)
    updated_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key


class LengthsMark(models.Model):
    """The last ended session whose length was counted. There is only one such mark."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    ended_at = models.DateTimeField()
    session_id = models.UUIDField()

    def __str__(self) -> str:
        return f"lengths up to {self.ended_at}"


class StartForecast(models.Model):
    """When a pending session probably starts: the newest forecast, and the first one, which is scored.

    The start is between ``early`` and ``late`` in 8 of 10 cases, and by ``latest`` in 19 of 20. ``code``: why nothing
    can be said; empty if it can. ``ratio``: the wait that came, divided by the wait that was expected first.
    """

    session = models.OneToOneField(
        ComputeSession, on_delete=models.CASCADE, primary_key=True, related_name="start_forecast"
    )
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="+", db_index=False)
    expected = models.DateTimeField(null=True)
    early = models.DateTimeField(null=True)
    late = models.DateTimeField(null=True)
    latest = models.DateTimeField(null=True)
    is_reliable = models.BooleanField(default=False)
    code = models.CharField(max_length=16, blank=True)
    endless = models.PositiveIntegerField(
        default=0, help_text=Message("Placed sessions of the group whose end is unknown.")
    )
    updated_at = models.DateTimeField()
    method = models.PositiveSmallIntegerField(help_text=Message("The version of the method that made the first one."))
    first_at = models.DateTimeField(null=True)
    first_expected = models.DateTimeField(null=True)
    first_early = models.DateTimeField(null=True)
    first_late = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ratio = models.FloatField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["resource_group", "-started_at"],
                condition=models.Q(ratio__isnull=False),
                name="forecast_last_scored",
            ),
            models.Index(fields=["updated_at"], name="forecast_age"),
            models.Index(fields=["updated_at"], condition=models.Q(ratio__isnull=True), name="forecast_unscored"),
        ]

    def __str__(self) -> str:
        return f"start of {self.session_id}"

    @property
    def was_inside(self) -> bool:
        """Whether the start came within the first forecast's range; False while unknown."""
        if self.started_at is None or self.first_early is None or self.first_late is None:
            return False
        return self.first_early <= self.started_at <= self.first_late


class FreeAhead(models.Model):
    """What the agents of a group have free at moments to come, as the newest look ahead expects.

    ``moments``: of each its time, and the largest free amounts (thousandths) with the architecture of the agent.
    ``endless`` and ``was_cut``: as in ``Foreseen``.
    """

    resource_group = models.OneToOneField(
        ResourceGroup, on_delete=models.CASCADE, primary_key=True, related_name="free_ahead"
    )
    moments = models.JSONField(default=list)
    endless = models.PositiveIntegerField()
    was_cut = models.BooleanField()
    looked_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"free in {self.resource_group}"


class ForecastScore(models.Model):
    """How the last forecasts of a group came true, and the edges of ranges that follow.

    ``inside``: the share of starts within the range. ``error_seconds``: the median distance of start and expectation.
    ``bias``: the median of waits beside what was expected; above 1 they were longer. ``worst``: the ids of the
    sessions whose forecasts were most wrong. ``early``, ``late`` and ``latest``: see ``Spread``.
    """

    resource_group = models.OneToOneField(
        ResourceGroup, on_delete=models.CASCADE, primary_key=True, related_name="forecast_score"
    )
    number = models.PositiveIntegerField()
    inside = models.FloatField()
    error_seconds = models.FloatField()
    bias = models.FloatField()
    worst = models.JSONField(default=list)
    early = models.FloatField()
    late = models.FloatField()
    latest = models.FloatField()
    is_reliable = models.BooleanField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"forecasts of {self.resource_group}"
