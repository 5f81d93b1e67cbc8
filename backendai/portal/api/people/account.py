"""The user of the request, and their bearer tokens."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Prefetch
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import AccessToken, Project, User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import create_token, revoke_token
from backendai.portal.api.frame.authentication import asking_token, user_of
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.other_bodies import MeBody, NewTokenBody, TokenBody, TokenRequest


class Me(GenericAPIView[User]):
    """The user of the request."""

    serializer_class = MeBody

    def get(self, request: Request) -> Response:
        """Return the user with the projects in which they can start sessions."""
        projects = Prefetch("projects", Project.objects.usable_by(user_of(request)).select_related("domain"))
        me = User.objects.select_related("domain").prefetch_related(projects)
        return Response(self.get_serializer(get_object_or_404(me, pk=user_of(request).pk)).data)


class TokenList(ResourceView[AccessToken], ListAPIView[AccessToken]):
    """The user's own bearer tokens; creates one."""

    queryset = AccessToken.objects.all()
    serializer_class = TokenBody
    pagination_class = NewestFirst
    token_scopes = (Scope.ACCOUNT,)

    @extend_schema(request=TokenRequest, responses={201: NewTokenBody})
    def post(self, request: Request) -> Response:
        """Create a token; its text is only in this response."""
        values = values_of(TokenRequest, request.data)
        token, text = create_token(self.user, maker=asking_token(request), **values)
        answer = TokenBody(token).data | {"token": text}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class TokenDetail(GenericAPIView[AccessToken]):
    """One bearer token."""

    serializer_class = TokenBody
    token_scopes = (Scope.ACCOUNT,)

    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke the token; requests with it are rejected from now on."""
        revoke_token(user_of(request), token_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class OwnToken(GenericAPIView[AccessToken]):
    """The bearer token of the request itself."""

    serializer_class = TokenBody
    token_scopes = (Scope.READ,)  # any token may end itself

    def delete(self, request: Request) -> Response:
        """Revoke the token that the request carries."""
        token = asking_token(request)
        if token is None:
            raise UserError("This request carries no access token: name one by its ID.", code="no-token")
        revoke_token(user_of(request), token.pk)
        return Response(status=status.HTTP_204_NO_CONTENT)
