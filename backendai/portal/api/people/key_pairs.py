"""The user's own key pairs. Creating or changing one needs a token with every scope; signed requests have them all."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import KeyPair
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.key_pairs import change_key_pair, create_key_pair, rotate_secret
from backendai.domain.compute.services.launching.key_pairs import delete_key_pair
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.people.key_pair_bodies import KeyPairBody, KeyPairChange, KeyPairRequest, NewKeyPairBody


class KeyPairList(ListAPIView[KeyPair]):
    """The user's own key pairs; creates one."""

    queryset = KeyPair.objects.none()
    serializer_class = KeyPairBody
    pagination_class = NewestFirst
    token_scopes = tuple(Scope)

    def get_queryset(self) -> QuerySet[KeyPair]:
        """Return the user's own key pairs."""
        return KeyPair.objects.visible_to(user_of(self.request))

    @extend_schema(request=KeyPairRequest, responses={201: NewKeyPairBody})
    def post(self, request: Request) -> Response:
        """Create a key pair; its secret is only in this response."""
        body = KeyPairRequest(data=request.data)
        body.is_valid(raise_exception=True)
        return _with_secret(*create_key_pair(user_of(request), **body.validated_data), status.HTTP_201_CREATED)


class KeyPairDetail(GenericAPIView[Any]):
    """One key pair."""

    serializer_class = KeyPairBody
    token_scopes = tuple(Scope)

    @extend_schema(request=KeyPairChange, responses=KeyPairBody)
    def patch(self, request: Request, access_key: str) -> Response:
        """Rename the key pair, activate or deactivate it, or make it the main one."""
        body = KeyPairChange(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(KeyPairBody(change_key_pair(user_of(request), access_key, **body.validated_data)).data)

    @extend_schema(responses={204: None})
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
