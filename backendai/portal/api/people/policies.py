"""Resource policies, for superadmins. Others see none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import PolicyDefault, ResourcePolicy
from backendai.domain.accounts.policies.applicable import HOLDER_WORDS
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.policies import delete_policy, write_policy
from backendai.domain.cluster.slot_types import check_known
from backendai.portal.api.frame.fields import DecimalAmounts
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import AmountsField, LengthField, StrictSerializer, values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView

_MOST = 2**31 - 1
_Numbers = {"type": "object", "additionalProperties": {"type": "integer"}}


def _limit(most: int = _MOST, **options: Any) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=most, **options)


class PolicyRequest(StrictSerializer):
    """A policy. Omitted fields mean no limit; in a change they stay."""

    name = serializers.CharField(max_length=64)
    slots = AmountsField(required=False, help_text="Maximum of running sessions together; 0: none.")
    unnamed_slots = serializers.ChoiceField(
        choices=ResourcePolicy.Unnamed.choices, required=False, help_text="Limit of slots that are not listed."
    )
    max_sessions = _limit(help_text="Running sessions at once.")
    max_pending_sessions = _limit()
    max_pending_slots = AmountsField(required=False, help_text="Maximum of pending sessions together.")
    max_priority = _limit(100)
    max_kernels_per_session = _limit(32767)
    max_session_lifetime = LengthField(
        required=False, allow_null=True, help_text="90s, 15m, 2h or 1d, seconds, or hh:mm:ss."
    )
    max_concurrent_logins = _limit(32767)
    max_customized_images = _limit(32767)
    max_stopped_sessions = _limit(help_text="Stopped sessions of one user at once.")
    max_system_sessions = _limit(32767, help_text="File access sessions of one user at once; null: 1.")
    max_endpoints = _limit(help_text="Inference endpoints, also stopped ones.")
    max_replicas_per_endpoint = _limit(32767, help_text="Highest maximum of an endpoint.")
    max_folders = _limit(help_text="Folders of one user or one project.")
    max_folder_bytes = _limit(2**63 - 1, help_text="Sum of the limits of these folders.")
    required_labels = serializers.ListField(
        child=serializers.CharField(max_length=64), required=False, help_text="Keys of labels that launches must have."
    )
    default_for = serializers.ListField(
        child=serializers.ChoiceField(choices=PolicyDefault.Holder.choices),
        required=False,
        help_text="Kinds of new holders that get it.",
    )


class PolicyBody(serializers.ModelSerializer[ResourcePolicy]):
    """A resource policy, and the number of its holders."""

    slots = DecimalAmounts(read_only=True)
    max_pending_slots = DecimalAmounts(read_only=True)
    unnamed_slots = serializers.CharField()
    required_labels = serializers.ListField(child=serializers.CharField(), read_only=True)
    default_for = serializers.SerializerMethodField()
    used_by = serializers.SerializerMethodField()

    class Meta:
        model = ResourcePolicy
        fields = [
            "id", "name", "slots", "unnamed_slots", "max_sessions", "max_pending_sessions", "max_pending_slots",
            "max_priority", "max_kernels_per_session", "max_session_lifetime", "max_concurrent_logins",
            "max_customized_images", "max_stopped_sessions", "max_system_sessions", "max_endpoints",
            "max_replicas_per_endpoint",
            "max_folders", "max_folder_bytes", "required_labels", "default_for", "used_by", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_default_for(self, policy: ResourcePolicy) -> list[str]:
        """Return the kinds of new holders that get this policy."""
        return sorted(default.holder for default in policy.default_for.all())

    @extend_schema_field(_Numbers)
    def get_used_by(self, policy: Any) -> dict[str, int]:
        """Return the number of the policy's holders, by kind."""
        return {word.replace(" ", "-"): getattr(policy, f"number_of_{kind}") for kind, word in HOLDER_WORDS.items()}


class PolicyView(ResourceView[ResourcePolicy]):
    """The base of the views of policies."""

    queryset = ResourcePolicy.objects.with_holders().prefetch_related("default_for")
    serializer_class = PolicyBody
    token_scopes = (Scope.ADMIN,)


class PolicyList(PolicyView, ListAPIView[ResourcePolicy]):
    """All policies; creates one."""

    pagination_class = ByName

    @extend_schema(request=PolicyRequest, responses={201: PolicyBody})
    def post(self, request: Request) -> Response:
        """Create a policy."""
        if not self.user.is_superadmin:
            raise Http404
        values = values_of(PolicyRequest, request.data)
        _check_slots(values)
        made = write_policy(self.user.pk, ResourcePolicy(), values)
        return self.answer(get_object_or_404(self.get_queryset(), pk=made.pk), status.HTTP_201_CREATED)


class PolicyDetail(VersionedView, PolicyView):
    """One policy."""

    versioned = (ResourcePolicy, "pk")

    @extend_schema(responses=PolicyBody)
    def get(self, request: Request, pk: int) -> Response:
        """Return the policy."""
        return self.answer(self.get_object())

    @extend_schema(request=PolicyRequest, responses=PolicyBody)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields. They apply from the next pass; running sessions continue."""
        policy, values = self.get_object(), values_of(PolicyRequest, request.data, partial=True)
        _check_slots(values, policy)
        write_policy(self.user.pk, policy, values)
        return self.answer(self.get_object())

    def delete(self, request: Request, pk: int) -> Response:
        """Delete the policy; 409 ``policy-in-use`` with the counts while it is assigned."""
        delete_policy(self.user.pk, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


def _check_slots(values: Mapping[str, Any], policy: ResourcePolicy | None = None) -> None:
    """Refuse slots that no agent has offered and the policy does not have yet."""
    for field in ("slots", "max_pending_slots"):
        if isinstance(amounts := values.get(field), Mapping):
            check_known(amounts, field=field, kept=getattr(policy, field, ()))
