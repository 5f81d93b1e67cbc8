"""The limits of key pairs, for administrators of their users."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.roles import Action, may_user
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.key_pairs import limit_key_pair
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.named import policy_named
from backendai.portal.api.frame.parsing import StrictSerializer


class LimitedKeyPairBody(serializers.ModelSerializer[KeyPair]):
    """A key pair as an administrator sees it."""

    policy = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)

    class Meta:
        model = KeyPair
        fields = ["access_key", "name", "is_active", "is_main", "policy", "rate_limit", "created_at", "last_used_at"]
        read_only_fields = fields


class KeyPairLimitChange(StrictSerializer):
    """Changes of the limits; omitted fields stay unchanged."""

    policy = serializers.CharField(max_length=64, required=False, allow_null=True, help_text="Its name; null: none.")
    rate_limit = serializers.IntegerField(
        required=False, min_value=0, max_value=2**31 - 1, help_text="Signed requests in 15 minutes; 0: no limit."
    )


class UserKeyPairs(GenericAPIView[KeyPair]):
    """The key pairs of a user."""

    queryset = KeyPair.objects.none()
    serializer_class = LimitedKeyPairBody
    filter_backends: list[Any] = []
    token_scopes = (Scope.ADMIN,)

    @extend_schema(responses=LimitedKeyPairBody(many=True))
    def get(self, request: Request, user_id: UUID) -> Response:
        """Return the key pairs, the oldest first."""
        return Response(LimitedKeyPairBody(_pairs_of(request, user_id).order_by("created_at"), many=True).data)


class UserKeyPair(GenericAPIView[Any]):
    """One key pair of a user."""

    serializer_class = LimitedKeyPairBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=KeyPairLimitChange, responses=LimitedKeyPairBody)
    def patch(self, request: Request, user_id: UUID, pair: str) -> Response:
        """Change the given limits."""
        found = get_object_or_404(_pairs_of(request, user_id), pk=pair)
        body = KeyPairLimitChange(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = dict(body.validated_data)
        if "policy" in wishes:
            wishes["policy"] = policy_named(wishes["policy"])
        return Response(LimitedKeyPairBody(limit_key_pair(user_of(request), found, wishes)).data)


def _pairs_of(request: Request, user_id: UUID) -> QuerySet[KeyPair]:
    owner = User.objects.visible_to(user_of(request)).filter(pk=user_id).first()
    if owner is None or not may_user(user_of(request), Action.SET_USER_POLICY, owner):
        raise NotFound("User not found.")
    return KeyPair.objects.filter(user=owner).select_related("user", "policy")
