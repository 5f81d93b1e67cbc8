"""What the use of a session looks like: what was measured, over time and on the whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rest_framework import serializers

from backendai.usage.samples import MOST_POINTS

HOUR = 3600
LONGEST = 366 * 24 * HOUR


class UsageQuery(serializers.Serializer[Any]):
    """Which time, in how many points, and of which kernel."""

    seconds = serializers.IntegerField(
        default=HOUR, min_value=60, max_value=LONGEST, help_text="How far to look back; an hour unless it is given."
    )
    until = serializers.DateTimeField(
        required=False, help_text="The end of the time; left out: now, or when the session ended."
    )
    points = serializers.IntegerField(default=60, min_value=1, max_value=MOST_POINTS)
    kernel = serializers.UUIDField(required=False, help_text="One kernel alone; left out: all together.")

    def validate_seconds(self, value: int) -> timedelta:
        """Return it as a length of time."""
        return timedelta(seconds=value)


class UsageAveragesBody(serializers.Serializer[Any]):
    """The mean over the whole time."""

    slots = serializers.DictField(
        child=serializers.FloatField(allow_null=True),
        help_text="Of each slot the part that was used, 0 to 1; null unless it was measured of every kernel.",
    )
    covered_seconds = serializers.FloatField(help_text="How much of the time was measured.")


class UsagePointBody(serializers.Serializer[Any]):
    """The mean over one step."""

    at = serializers.DateTimeField(help_text="When the step begins.")
    used = serializers.DictField(child=serializers.FloatField(), help_text="By slot: cores, bytes, devices.")
    memory = serializers.DictField(child=serializers.FloatField(), help_text="Bytes of accelerators, by slot.")
    rates = serializers.DictField(
        child=serializers.FloatField(), help_text="Bytes in a second: net_rx, net_tx, io_read, io_write."
    )


class UsageBody(serializers.Serializer[Any]):
    """What a session really used. Steps in which nothing was measured have no point."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step = serializers.FloatField(help_text="Seconds from point to point.")
    held = serializers.DictField(child=serializers.FloatField(), help_text="What it was given, in the same units.")
    averages = UsageAveragesBody()
    points = UsagePointBody(many=True)
