"""What requests about agents and their join tokens look like."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.api.answers import Answer
from backendai.api.parsing import StrictSerializer
from backendai.cluster.models import JoinToken


class AgentChange(StrictSerializer):
    """What to change about an agent; what is left out stays."""

    schedulable = serializers.BooleanField(required=False)
    max_kernels = serializers.IntegerField(required=False, allow_null=True, help_text="Null: as the group says.")
    resource_group = serializers.CharField(required=False, max_length=63)
    force = serializers.BooleanField(
        required=False,
        help_text="Move it though it runs kernels, which stay and count in the old group.",
    )


class DrainRequest(StrictSerializer):
    """How to empty an agent."""

    ends_at = serializers.DateTimeField(
        default=None, allow_null=True, help_text="When what still runs there is ended; null: never."
    )


class JoinTokenRequest(StrictSerializer):
    """A new join token."""

    resource_group = serializers.CharField(max_length=63)
    # Blanks are no prefix: taken for an empty one, the token would be good for every name.
    name_prefix = serializers.CharField(max_length=63, default="", allow_blank=True, trim_whitespace=False)
    reusable = serializers.BooleanField(default=False)
    expires_at = serializers.DateTimeField(default=None, allow_null=True)


class JoinTokenBody(Answer[JoinToken]):
    """A join token without its text."""

    resource_group = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    agent = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)

    class Meta:
        model = JoinToken
        fields = [
            "id", "hint", "resource_group", "agent", "name_prefix", "is_reusable", "used_at", "expires_at",
            "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewJoinTokenBody(serializers.Serializer[Any]):
    """The text of a join token, which is said this once, and the command that uses it."""

    token = serializers.CharField()
    command = serializers.CharField()
