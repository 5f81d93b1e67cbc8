"""When sessions are stopped and resumed by the clock."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.scheduler.stop_times import DailyTimes


class StopSchedule(models.Model):
    """The times at which one session is stopped and resumed. ``acted_for``: the last moment that needs nothing more;
    ``warned_for``: the stop of which its owner was warned."""

    session = models.OneToOneField(
        "compute.ComputeSession", on_delete=models.CASCADE, primary_key=True, related_name="stop_schedule"
    )
    stop_at = models.TimeField()
    resume_at = models.TimeField(null=True, blank=True, help_text=Message("Empty: somebody resumes it by hand."))
    is_weekdays = models.BooleanField(default=False, help_text=Message("From Monday to Friday only."))
    time_zone = models.CharField(max_length=64)
    acted_for = models.DateTimeField(default=timezone.now, editable=False)
    warned_for = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"{self.session_id} at {self.stop_at}"

    @property
    def times(self) -> DailyTimes:
        """The times as the decision reads them."""
        return DailyTimes(self.stop_at, self.resume_at, self.is_weekdays, self.time_zone)
