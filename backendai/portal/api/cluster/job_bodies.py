"""The body of a background job."""

from __future__ import annotations

from rest_framework import serializers

from backendai.domain.activity.models import BackgroundJob
from backendai.portal.api.frame.answers import Answer


class JobBody(Answer[BackgroundJob]):
    """A background job."""

    progress = serializers.FloatField(source="share", allow_null=True, help_text="From 0 to 1; null: not known.")
    result = serializers.DictField(help_text="The result; its keys depend on the kind.")

    class Meta:
        model = BackgroundJob
        fields = [
            "id", "kind", "subject", "status", "progress", "done", "total", "unit", "message", "fix", "result",
            "created_at", "updated_at", "finished_at", "deadline_at", "cancel_requested_at",
        ]  # fmt: skip
        read_only_fields = fields
