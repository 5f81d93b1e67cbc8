"""Bodies of requests and answers about people, projects, domains and invitations."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.domain.accounts.models import Domain, Invitation, Membership, Project, User
from backendai.domain.accounts.services.grants import LARGEST_WEIGHT, LEAST_WEIGHT
from backendai.portal.api.frame.parsing import StrictSerializer

_Name = {"type": "string", "nullable": True}
_POLICY = "The name of a policy; null: no limits of its own."


class UserBody(serializers.ModelSerializer[User]):
    """A user."""

    role = serializers.CharField()
    domain = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    policy = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    projects = serializers.SerializerMethodField()

    class Meta:
        model = User
        fields = [
            "id", "email", "full_name", "role", "domain", "is_active", "policy", "share_weight", "projects",
            "last_login", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_projects(self, user: User) -> list[str]:
        """Return the names of the projects that the person belongs to."""
        return [membership.project.name for membership in user.memberships.all()]


class NewUserRequest(StrictSerializer):
    """A new user. Without a password they cannot sign in by password: invite them instead."""

    email = serializers.CharField(max_length=254)
    full_name = serializers.CharField(max_length=128, default="", allow_blank=True)
    role = serializers.ChoiceField(choices=User.Role.choices, default=User.Role.USER)
    domain = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="Default: your own.")
    password = serializers.CharField(max_length=128, default="", allow_blank=True, trim_whitespace=False)
    policy = serializers.CharField(max_length=64, default=None, allow_null=True, help_text=_POLICY)
    projects = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, max_length=100, help_text="IDs or names."
    )


class UserChange(StrictSerializer):
    """Changes of a person; omitted fields stay unchanged."""

    email = serializers.CharField(max_length=254, required=False)
    full_name = serializers.CharField(max_length=128, required=False, allow_blank=True)
    role = serializers.ChoiceField(choices=User.Role.choices, required=False)
    domain = serializers.CharField(max_length=64, required=False, allow_null=True)
    policy = serializers.CharField(max_length=64, required=False, allow_null=True, help_text=_POLICY)
    share_weight = serializers.FloatField(required=False, min_value=LEAST_WEIGHT, max_value=LARGEST_WEIGHT)


class PasswordRequest(StrictSerializer):
    """A password that an administrator sets."""

    password = serializers.CharField(max_length=128, trim_whitespace=False)
    end_tokens = serializers.BooleanField(default=False, help_text="Also revoke access tokens; sign-ins always end.")


class PurgeRequest(StrictSerializer):
    """The e-mail address of the user, to confirm the purge."""

    email = serializers.CharField(max_length=254)


class ProjectDetail(serializers.ModelSerializer[Project]):
    """A project."""

    domain = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    policy = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    members = serializers.IntegerField(source="number_of_members")

    class Meta:
        model = Project
        fields = ["id", "name", "domain", "is_active", "policy", "share_weight", "members", "created_at"]
        read_only_fields = fields


class NewProjectRequest(StrictSerializer):
    """A new project."""

    name = serializers.CharField(max_length=64)
    domain = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="Default: your own.")
    policy = serializers.CharField(max_length=64, default=None, allow_null=True, help_text=_POLICY)


class ProjectChange(StrictSerializer):
    """Changes of a project; omitted fields stay unchanged."""

    name = serializers.CharField(max_length=64, required=False)
    is_active = serializers.BooleanField(required=False)
    policy = serializers.CharField(max_length=64, required=False, allow_null=True, help_text=_POLICY)
    share_weight = serializers.FloatField(required=False, min_value=LEAST_WEIGHT, max_value=LARGEST_WEIGHT)


class MemberBody(serializers.ModelSerializer[Membership]):
    """A member of a project."""

    user = serializers.UUIDField(source="user_id")
    email = serializers.CharField(source="user.email")
    full_name = serializers.CharField(source="user.full_name")
    is_active = serializers.BooleanField(source="user.is_active")
    role = serializers.CharField()

    class Meta:
        model = Membership
        fields = ["user", "email", "full_name", "is_active", "role", "created_at"]
        read_only_fields = fields


class NewMemberRequest(StrictSerializer):
    """The user of the project's domain to add, by e-mail address."""

    email = serializers.CharField(max_length=254)
    role = serializers.ChoiceField(choices=Membership.Role.choices, default=Membership.Role.MEMBER)


class MemberChange(StrictSerializer):
    """The new role of a member in the project."""

    role = serializers.ChoiceField(choices=Membership.Role.choices)


class DomainBody(serializers.ModelSerializer[Domain]):
    """A domain."""

    policy = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)

    class Meta:
        model = Domain
        fields = ["id", "name", "is_active", "policy", "share_weight", "created_at"]
        read_only_fields = fields


class NewDomainRequest(StrictSerializer):
    """A new domain."""

    name = serializers.CharField(max_length=64)
    policy = serializers.CharField(max_length=64, default=None, allow_null=True, help_text=_POLICY)


class DomainChange(ProjectChange):
    """Changes of a domain; omitted fields stay unchanged."""


class InvitationBody(serializers.ModelSerializer[Invitation]):
    """An invitation, without its link."""

    project = serializers.UUIDField(source="project_id")
    project_name = serializers.CharField(source="project.name")
    policy = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    invited_by = serializers.SlugRelatedField[Any](slug_field="email", read_only=True, allow_null=True)
    role = serializers.CharField()
    state = serializers.SerializerMethodField()

    class Meta:
        model = Invitation
        fields = [
            "id", "email", "full_name", "project", "project_name", "role", "policy", "state", "invited_by",
            "created_at", "expires_at", "accepted_at", "revoked_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": "string", "enum": Invitation.State.values})
    def get_state(self, invitation: Invitation) -> str:
        """Return whether the invitation is open, accepted, expired or revoked."""
        return str(invitation.state(timezone.now()))


class NewInvitationBody(InvitationBody):
    """An invitation with its link, which is only shown once."""

    link = serializers.CharField()
    mailed = serializers.BooleanField(help_text="Whether the link was also sent by mail.")

    class Meta(InvitationBody.Meta):
        fields = [*InvitationBody.Meta.fields, "link", "mailed"]
        read_only_fields = fields


class InvitationRequest(StrictSerializer):
    """A new invitation to a project."""

    email = serializers.CharField(max_length=254)
    full_name = serializers.CharField(max_length=128, default="", allow_blank=True)
    project = serializers.CharField(max_length=64, help_text="ID or name.")
    role = serializers.ChoiceField(choices=Membership.Role.choices, default=Membership.Role.MEMBER)
    policy = serializers.CharField(max_length=64, default=None, allow_null=True, help_text="For a new account.")
    days = serializers.IntegerField(default=7, min_value=1, max_value=90)
