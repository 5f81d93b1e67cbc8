"""Bodies of requests and answers about agents and their join tokens."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.domain.cluster.models.groups import JoinToken
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import MomentField, StrictSerializer


class AgentChange(StrictSerializer):
    """Changes of an agent; omitted fields stay unchanged."""

    schedulable = serializers.BooleanField(required=False)
    max_kernels = serializers.IntegerField(required=False, allow_null=True, help_text="Null: the group's setting.")
    resource_group = serializers.CharField(required=False, max_length=63)
    force = serializers.BooleanField(
        required=False,
        help_text="Also move an agent with kernels, which continue and count in the old group.",
    )


class DrainRequest(StrictSerializer):
    """The end of a drain."""

    ends_at = MomentField(default=None, allow_null=True, help_text="When the remaining sessions end; null: never.")


class JoinTokenRequest(StrictSerializer):
    """A new join token."""

    resource_group = serializers.CharField(max_length=63)
    # Blanks are no prefix: taken for an empty one, the token would be good for every name.
    name_prefix = serializers.CharField(max_length=63, default="", allow_blank=True, trim_whitespace=False)
    reusable = serializers.BooleanField(default=False)
    expires_at = MomentField(default=None, allow_null=True)


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
    """A join token with its text, which is only shown once, and the command for the new machine."""

    token = serializers.CharField()
    command = serializers.CharField()
