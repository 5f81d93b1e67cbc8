"""Bodies of the user's recent launches."""

from __future__ import annotations

from rest_framework import serializers

from backendai.domain.compute.models.sessions import LaunchRecord
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import StrictSerializer
from backendai.portal.api.sessions.launch_bodies import LONGEST_NAME_READ, NAME_RULE


class RecentLaunchBody(Answer[LaunchRecord]):
    """A recent launch in the browser."""

    parameters = serializers.JSONField(
        source="document",
        help_text="The values that differ from the defaults. Variables that look like secrets are null.",
    )

    class Meta:
        model = LaunchRecord
        fields = ["id", "name", "is_pinned", "parameters", "created_at"]
        read_only_fields = fields


class RecentLaunchChange(StrictSerializer):
    """Changes of a recent launch; omitted fields stay unchanged."""

    name = serializers.CharField(required=False, max_length=LONGEST_NAME_READ, help_text=NAME_RULE)
    is_pinned = serializers.BooleanField(required=False)
