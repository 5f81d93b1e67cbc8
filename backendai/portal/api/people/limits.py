"""The user's own limits. In answers null means no limit, or an unlimited rest."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.slots import decimal_text
from backendai.domain.compute.services.requests.check import project_of
from backendai.domain.planning.amounts import allowances
from backendai.domain.planning.amounts.allowances import Allowance, HolderLimits
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import BoundedSerializer, values_of

_NUMBERS = ("limit", "used", "pending", "pending_limit", "remaining")


class OwnAllowanceBody(serializers.Serializer[Any]):
    """Limit, usage and remaining amount of one slot, as decimal strings."""

    limit = serializers.CharField(allow_null=True)
    used = serializers.CharField(help_text="Usage of running sessions.")
    pending = serializers.CharField(help_text="Requested by pending sessions.")
    pending_limit = serializers.CharField(allow_null=True)
    remaining = serializers.CharField(allow_null=True)


class OwnSessionsBody(serializers.Serializer[Any]):
    """Numbers of sessions."""

    limit = serializers.IntegerField(allow_null=True)
    used = serializers.IntegerField()
    pending = serializers.IntegerField()
    pending_limit = serializers.IntegerField(allow_null=True)
    remaining = serializers.IntegerField(allow_null=True)


class OwnHolderBody(serializers.Serializer[Any]):
    """A holder against whose limits a launch counts: a key pair, the user, the project or the domain."""

    scope = serializers.CharField()
    name = serializers.CharField()
    policy = serializers.CharField(allow_null=True, help_text="The name of its policy; null: no policy.")
    unnamed_slots = serializers.CharField(help_text="What slots mean that the policy does not name.")
    sessions = OwnSessionsBody()
    slots = serializers.DictField(child=OwnAllowanceBody())
    max_priority = serializers.IntegerField(allow_null=True)
    max_kernels_per_session = serializers.IntegerField(allow_null=True)
    max_session_lifetime = serializers.DurationField(allow_null=True)


class OwnLimitsBody(serializers.Serializer[Any]):
    """Limits and usage of every holder against which a launch in this project counts, the narrowest first."""

    project = serializers.CharField(allow_null=True)
    limits = OwnHolderBody(many=True)
    remaining = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="What the strictest limit leaves; null: any amount."
    )
    strictest = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="The scope of the strictest limit; null: there is none."
    )
    remaining_sessions = serializers.IntegerField(allow_null=True)


class LimitsQuery(BoundedSerializer):
    """The project of the launch."""

    project = serializers.CharField(
        max_length=64, default="", allow_blank=True, help_text="ID or name; default: the project of launches."
    )


class OwnLimits(GenericAPIView[Any]):
    """The user's limits, usage and remaining amounts."""

    serializer_class = OwnLimitsBody

    @extend_schema(parameters=[LimitsQuery], responses=OwnLimitsBody)
    def get(self, request: Request) -> Response:
        """Return limits and usage of key pair, user, project and domain, and the remaining amounts."""
        values = values_of(LimitsQuery, request.query_params)
        user = user_of(request)
        return Response(limits_body(allowances.own_limits(user, project_of(user, values["project"]))))


def limits_body(found: allowances.OwnLimits) -> dict[str, Any]:
    """Return the limits as JSON values."""
    return {
        "project": found.project.name if found.project else None,
        "limits": [_holder(holder) for holder in found.holders],
        "remaining": {slot: _text(found.remaining(slot)) for slot in found.strictest},
        "strictest": {slot: holder.scope if holder else None for slot, holder in found.strictest.items()},
        "remaining_sessions": found.remaining_sessions,
    }


def _holder(holder: HolderLimits) -> dict[str, Any]:
    policy = holder.policy
    lifetime = policy.max_session_lifetime if policy else None
    return {
        "scope": holder.scope,
        "name": holder.name,
        "policy": policy.name if policy else None,
        "unnamed_slots": policy.unnamed_slots if policy else "unlimited",
        "sessions": {name: getattr(holder.sessions, name) for name in _NUMBERS},
        "slots": {slot: _allowance(one) for slot, one in holder.slots.items()},
        "max_priority": policy.max_priority if policy else None,
        "max_kernels_per_session": policy.max_kernels_per_session if policy else None,
        "max_session_lifetime": serializers.DurationField().to_representation(lifetime) if lifetime else None,
    }


def _allowance(one: Allowance) -> dict[str, str | None]:
    return {name: _text(getattr(one, name)) for name in _NUMBERS}


def _text(amount: int | None) -> str | None:
    return None if amount is None else decimal_text(amount)
