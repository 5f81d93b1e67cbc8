"""The limits of key pairs, for administrators of their users."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.roles import Action, may_user
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.key_pairs import limit_key_pair
from backendai.portal.api.frame.named import policy_named
from backendai.portal.api.frame.paging import OnePage, only_page
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView


class LimitedKeyPairBody(serializers.ModelSerializer[KeyPair]):
    """A key pair as an administrator sees it."""

    policy = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)

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


class UserKeyPairView(ResourceView[KeyPair]):
    """The base of the views of a user's key pairs."""

    queryset = KeyPair.objects.select_related("user", "policy")
    serializer_class = LimitedKeyPairBody
    lookup_url_kwarg = "pair"
    token_scopes = (Scope.ADMIN,)

    def visible(self, rows: Any) -> QuerySet[KeyPair]:
        """Return the key pairs of the user in the address. Raises NotFound unless their limits may be changed."""
        owner = User.objects.visible_to(self.user).filter(pk=self.kwargs["user_id"]).first()
        if owner is None or not may_user(self.user, Action.SET_USER_POLICY, owner):
            raise NotFound("User not found.")
        found: QuerySet[KeyPair] = rows.filter(user=owner)
        return found


class UserKeyPairs(UserKeyPairView):
    """The key pairs of a user."""

    pagination_class = OnePage

    @extend_schema(responses=LimitedKeyPairBody(many=True))
    def get(self, request: Request, user_id: UUID) -> Response:
        """Return the key pairs, the oldest first."""
        return only_page(LimitedKeyPairBody(self.get_queryset().order_by("created_at"), many=True).data)


class UserKeyPair(UserKeyPairView):
    """One key pair of a user."""

    @extend_schema(request=KeyPairLimitChange, responses=LimitedKeyPairBody)
    def patch(self, request: Request, user_id: UUID, pair: str) -> Response:
        """Change the given limits."""
        found, values = self.get_object(), values_of(KeyPairLimitChange, request.data)
        if "policy" in values:
            values["policy"] = policy_named(values["policy"])
        return self.answer(limit_key_pair(self.user, found, values))
