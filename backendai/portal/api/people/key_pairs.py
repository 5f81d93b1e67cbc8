"""The user's own key pairs. Creating or changing one needs a token with every scope; signed requests have them all."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import KeyPair
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.key_pairs import change_key_pair, create_key_pair, rotate_secret
from backendai.domain.compute.services.launching.key_pairs import delete_key_pair
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView


class KeyPairBody(serializers.ModelSerializer[KeyPair]):
    """A key pair without its secret."""

    has_secret = serializers.BooleanField(
        source="secret", read_only=True, help_text="false: it cannot sign requests; rotate it to get a secret."
    )

    class Meta:
        model = KeyPair
        fields = [
            "access_key", "name", "is_active", "is_main", "has_secret", "rate_limit", "created_at", "last_used_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewKeyPairBody(KeyPairBody):
    """A key pair with its secret, which is only shown once."""

    secret_key = serializers.CharField()

    class Meta(KeyPairBody.Meta):
        fields = [*KeyPairBody.Meta.fields, "secret_key"]
        read_only_fields = fields


class KeyPairRequest(StrictSerializer):
    """A new key pair."""

    name = serializers.CharField(max_length=64)


class KeyPairChange(StrictSerializer):
    """Changes of a key pair; omitted fields stay unchanged."""

    name = serializers.CharField(max_length=64, required=False)
    is_active = serializers.BooleanField(required=False)
    is_main = serializers.BooleanField(required=False)


class KeyPairList(ResourceView[KeyPair], ListAPIView[KeyPair]):
    """The user's own key pairs; creates one."""

    queryset = KeyPair.objects.all()
    serializer_class = KeyPairBody
    pagination_class = NewestFirst
    token_scopes = tuple(Scope)

    @extend_schema(request=KeyPairRequest, responses={201: NewKeyPairBody})
    def post(self, request: Request) -> Response:
        """Create a key pair; its secret is only in this response."""
        values = values_of(KeyPairRequest, request.data)
        return _with_secret(*create_key_pair(self.user, **values), status.HTTP_201_CREATED)


class KeyPairDetail(GenericAPIView[Any]):
    """One key pair."""

    serializer_class = KeyPairBody
    token_scopes = tuple(Scope)

    @extend_schema(request=KeyPairChange, responses=KeyPairBody)
    def patch(self, request: Request, access_key: str) -> Response:
        """Rename the key pair, activate or deactivate it, or make it the main one."""
        values = values_of(KeyPairChange, request.data)
        return Response(KeyPairBody(change_key_pair(user_of(request), access_key, **values)).data)

    def delete(self, request: Request, access_key: str) -> Response:
        """Delete the key pair. 409 if it is the main one, or while sessions count against it."""
        delete_key_pair(user_of(request), access_key)
        return Response(status=status.HTTP_204_NO_CONTENT)


class KeyPairRotation(GenericAPIView[Any]):
    """A new secret for a key pair."""

    serializer_class = NewKeyPairBody
    token_scopes = tuple(Scope)

    @extend_schema(request=None, responses=NewKeyPairBody)
    def post(self, request: Request, access_key: str) -> Response:
        """Return the new secret, which is shown only once; signatures with the old one are rejected from now on."""
        return _with_secret(*rotate_secret(user_of(request), access_key), status.HTTP_200_OK)


def _with_secret(pair: KeyPair, secret: str, code: int) -> Response:
    answer = KeyPairBody(pair).data | {"secret_key": secret}
    return Response(answer, status=code, headers={"Cache-Control": "no-store"})
