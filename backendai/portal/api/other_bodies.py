"""Bodies of resource groups, agents, projects, the user and tokens."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.domain.accounts.models import AccessToken, Project, User
from backendai.domain.cluster.groups.changes import default_group_of
from backendai.domain.cluster.models import Agent
from backendai.portal.api.frame.parsing import MomentField, StrictSerializer

_Amounts = {"type": "object", "additionalProperties": {"type": "string"}}


class ResourceGroupBody(serializers.Serializer[Any]):
    """A resource group and its free resources, over the reachable agents that take sessions."""

    name = serializers.CharField()
    description = serializers.CharField()
    is_active = serializers.BooleanField()
    is_default = serializers.BooleanField(help_text="Used when a launch names no group.")
    allowed_session_types = serializers.ListField(child=serializers.CharField())
    agents = serializers.IntegerField(help_text="Reachable agents that take sessions.")
    pending = serializers.IntegerField(help_text="Pending sessions.")
    capacity = serializers.DictField(child=serializers.CharField())
    occupied = serializers.DictField(child=serializers.CharField())
    free = serializers.DictField(child=serializers.CharField())


class NoteBody(serializers.Serializer[Any]):
    """A note about an agent: a problem and its remedy."""

    code = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()


class AgentBody(serializers.ModelSerializer[Agent]):
    """An agent."""

    resource_group = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    status = serializers.CharField()
    capacity = serializers.DictField(child=serializers.CharField())
    occupied = serializers.SerializerMethodField()
    reserved = serializers.DictField(child=serializers.CharField())
    disk_free = serializers.SerializerMethodField()
    disk_total = serializers.SerializerMethodField()
    notes = NoteBody(many=True)

    class Meta:
        model = Agent
        fields = [
            "id", "name", "resource_group", "status", "schedulable", "backend", "architecture", "version", "engine",
            "os_kernel", "capacity", "occupied", "reserved", "max_kernels", "disk_free", "disk_total", "low_disk",
            "fault", "notes", "gateway_url", "drain_started_at", "drain_ends_at", "drain_kernels", "revoked_at",
            "last_seen_at", "lost_at", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_disk_free(self, agent: Agent) -> int | None:
        """Return the free bytes of the disk with images and home folders; null: unknown."""
        free: int | None = agent.live.get("disk_free")
        return free

    def get_disk_total(self, agent: Agent) -> int | None:
        """Return the size of the disk with images and home folders in bytes; null: unknown."""
        total: int | None = agent.live.get("disk_total")
        return total

    @extend_schema_field(_Amounts)
    def get_occupied(self, agent: Agent) -> dict[str, str]:
        """Return the amounts that the agent's kernels hold, as decimal strings."""
        taken = self.context["occupied"].get(agent.pk)
        return taken.to_json() if taken else {}


class ProjectBody(serializers.ModelSerializer[Project]):
    """A project of the user."""

    domain = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)

    class Meta:
        model = Project
        fields = ["id", "name", "domain"]
        read_only_fields = fields


class MeBody(serializers.ModelSerializer[User]):
    """The user of the request."""

    role = serializers.CharField()
    domain = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    projects = ProjectBody(many=True)
    default_resource_group = serializers.SerializerMethodField(
        help_text="The group of launches that name none; null: launches must name one."
    )

    class Meta:
        model = User
        fields = ["id", "email", "full_name", "role", "domain", "projects", "default_resource_group"]
        read_only_fields = fields

    @extend_schema_field({"type": "string", "nullable": True})
    def get_default_resource_group(self, user: User) -> str | None:
        """Return the name of the user's default resource group, or None."""
        group = default_group_of(user)
        return group.name if group else None


class TokenRequest(StrictSerializer):
    """A new bearer token."""

    name = serializers.CharField(max_length=64)
    expires_at = MomentField(default=None, allow_null=True)
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=32),
        default=None,
        allow_null=True,
        max_length=16,
        help_text="read, sessions, folders, account, admin; default: all. Every token has read.",
    )


class TokenBody(serializers.ModelSerializer[AccessToken]):
    """A bearer token without its text."""

    scopes = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = AccessToken
        fields = ["id", "name", "hint", "scopes", "created_at", "last_used_at", "expires_at"]
        read_only_fields = fields


class NewTokenBody(TokenBody):
    """A bearer token with its text, which is only shown once."""

    token = serializers.CharField()

    class Meta(TokenBody.Meta):
        fields = [*TokenBody.Meta.fields, "token"]
        read_only_fields = fields
