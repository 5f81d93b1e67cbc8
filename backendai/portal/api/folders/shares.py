"""Shares of folders, invitations to folders, and their transfer to another person."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import User
from backendai.domain.accounts.roles import rules_people
from backendai.domain.accounts.scopes import Scope
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.permissions import require_rights
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services import (
    accept_invitation,
    decline_invitation,
    leave_folder,
    revoke_grant,
    set_override,
    share_folder,
    transfer_folders,
)
from backendai.domain.storage.status import GrantKind
from backendai.portal.api.folders.bodies import (
    FolderBody,
    FolderGrantBody,
    FolderInvitationBody,
    FolderShareRequest,
    FolderTransferRequest,
)
from backendai.portal.api.folders.views import shown_folders, visible_folder
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst


class FolderShares(ListAPIView[FolderGrant]):
    """The people with whom a folder is shared, for those who manage it."""

    queryset = FolderGrant.objects.none()
    serializer_class = FolderGrantBody
    pagination_class = NewestFirst
    filter_backends = []
    token_scopes = (Scope.FOLDERS,)

    def get_queryset(self) -> QuerySet[FolderGrant]:
        """Return the shares of the folder: invitations, accepted or not, and other rights of project members."""
        if getattr(self, "swagger_fake_view", False):
            return FolderGrant.objects.none()
        folder = require_rights(user_of(self.request), self.kwargs["folder_id"], MANAGE)
        return folder.grants.select_related("user").order_by()

    @extend_schema(request=FolderShareRequest, responses={201: FolderGrantBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Invite a person by e-mail address, or change the rights of a member of the folder's project.

        A repeated request changes the rights. 404 ``unknown-person``: nobody of your domain or projects has this
        address.
        """
        user, now = user_of(request), timezone.now()
        folder = require_rights(user, folder_id, MANAGE)
        body = FolderShareRequest(data=request.data)
        body.is_valid(raise_exception=True)
        data = body.validated_data
        if data["kind"] == GrantKind.OVERRIDE:
            grant = set_override(folder, user, _person(data["email"], "email"), data["rights"], now=now)
        else:
            grant = share_folder(folder, user, data["email"], data["rights"], now=now)
        return Response(FolderGrantBody(grant).data, status=status.HTTP_201_CREATED)


class FolderShare(GenericAPIView[Any]):
    """One person with whom a folder is shared."""

    token_scopes = (Scope.FOLDERS,)
    serializer_class = FolderGrantBody

    @extend_schema(responses={204: None})
    def delete(self, request: Request, folder_id: UUID, guest_id: UUID) -> Response:
        """Stop sharing; running sessions keep the mount until their end."""
        folder = require_rights(user_of(request), folder_id, MANAGE)
        other = User.objects.filter(pk=guest_id).first()
        if other is None:
            raise NotFound("The folder is not shared with them.", code="no-grant")
        revoke_grant(folder, user_of(request), other, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderLeave(GenericAPIView[Any]):
    """Leaving a shared folder."""

    token_scopes = (Scope.FOLDERS,)
    serializer_class = FolderBody

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Leave the folder; 409 ``not-shared`` if the user has access for another reason."""
        leave_folder(visible_folder(user_of(request), folder_id), user_of(request), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderInvitations(ListAPIView[FolderGrant]):
    """The user's invitations to folders of others."""

    queryset = FolderGrant.objects.none()
    serializer_class = FolderInvitationBody
    pagination_class = NewestFirst

    def get_queryset(self) -> QuerySet[FolderGrant]:
        """Return the user's open invitations."""
        return _invitations(self.request)


class FolderInvitationAccept(GenericAPIView[Any]):
    """Accepting an invitation."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=None, responses=FolderBody)
    def post(self, request: Request, grant_id: int) -> Response:
        """Accept the invitation, and return the folder."""
        grant = get_object_or_404(_invitations(request), pk=grant_id)
        accept_invitation(grant, user_of(request), now=timezone.now())
        return Response(FolderBody(get_object_or_404(shown_folders(user_of(request)), pk=grant.folder_id)).data)


class FolderInvitationDecline(GenericAPIView[FolderGrant]):
    """Declining an invitation."""

    serializer_class = FolderInvitationBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, grant_id: int) -> Response:
        """Decline the invitation; it can be sent again."""
        grant = get_object_or_404(_invitations(request), pk=grant_id)
        decline_invitation(grant, user_of(request), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTransfer(GenericAPIView[Any]):
    """Transferring all folders of one person to another."""

    queryset = Folder.objects.none()
    pagination_class = None
    filter_backends: list[Any] = []
    serializer_class = FolderBody
    token_scopes = (Scope.ADMIN, Scope.FOLDERS)

    @extend_schema(request=FolderTransferRequest, responses=FolderBody(many=True))
    def post(self, request: Request) -> Response:
        """Transfer all folders, also those in the trash, and return them; only for administrators of both people.

        A folder gets a number if the new owner already uses its name.
        """
        user = user_of(request)
        if not rules_people(user):
            raise NotFound("Not found, or you have no access.")
        body = FolderTransferRequest(data=request.data)
        body.is_valid(raise_exception=True)
        people = [_ruled(user, body.validated_data[field], field) for field in ("from_user", "to_user")]
        moved = transfer_folders(user, *people, now=timezone.now())
        rows = shown_folders(user).filter(pk__in=[folder.pk for folder in moved])
        return Response(FolderBody(rows, many=True).data)


def _invitations(request: Request) -> QuerySet[FolderGrant]:
    rows: QuerySet[FolderGrant] = FolderGrant.objects.pending_for(user_of(request)).select_related(
        "folder", "created_by"
    )
    return rows


def _person(email: str, field: str) -> User:
    user = User.objects.filter(email=email.strip().lower(), is_active=True).first()
    if user is None:
        raise NotFound("They are not members of the project.", field=field, code="no-member")
    return user


def _ruled(actor: User, email: str, field: str) -> User:
    people = User.objects.all() if actor.is_superadmin else User.objects.filter(domain=actor.domain_id)
    user = people.filter(email=email.strip().lower()).first()
    if user is None:
        raise NotFound("You do not administer a user with this address.", field=field, code="unknown-person")
    return user
