"""Shares of folders, invitations to folders, and their transfer to another person."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
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
from backendai.portal.api.folders.views import FolderView, shown_folder
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst, OnePage, only_page
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.views import ResourceView


class FolderShares(ResourceView[FolderGrant], ListAPIView[FolderGrant]):
    """The people with whom a folder is shared, for those who manage it."""

    queryset = FolderGrant.objects.select_related("user")
    serializer_class = FolderGrantBody
    pagination_class = NewestFirst
    token_scopes = (Scope.FOLDERS,)

    def visible(self, rows: Any) -> QuerySet[FolderGrant]:
        """Return the shares of the folder: invitations, accepted or not, and other rights of project members."""
        found: QuerySet[FolderGrant] = rows.filter(folder=self._folder()).order_by()
        return found

    @extend_schema(request=FolderShareRequest, responses={201: FolderGrantBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Invite a person by e-mail address, or change the rights of a member of the folder's project.

        A repeated request changes the rights. 404 ``unknown-person``: nobody of your domain or projects has this
        address.
        """
        user, folder, now = self.user, self._folder(), timezone.now()
        data = values_of(FolderShareRequest, request.data)
        if data["kind"] == GrantKind.OVERRIDE:
            grant = set_override(folder, user, _person(data["email"], "email"), data["rights"], now=now)
        else:
            grant = share_folder(folder, user, data["email"], data["rights"], now=now)
        return self.answer(grant, status.HTTP_201_CREATED)

    def _folder(self) -> Folder:
        return require_rights(self.user, self.kwargs["folder_id"], MANAGE)


class FolderShare(GenericAPIView[Any]):
    """One person with whom a folder is shared."""

    token_scopes = (Scope.FOLDERS,)
    serializer_class = FolderGrantBody

    def delete(self, request: Request, folder_id: UUID, guest_id: UUID) -> Response:
        """Stop sharing; running sessions keep the mount until their end."""
        folder = require_rights(user_of(request), folder_id, MANAGE)
        other = User.objects.filter(pk=guest_id).first()
        if other is None:
            raise NotFound("The folder is not shared with them.", code="no-grant")
        revoke_grant(folder, user_of(request), other, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderLeave(FolderView):
    """Leaving a shared folder."""

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Leave the folder; 409 ``not-shared`` if the user has access for another reason."""
        leave_folder(self.get_object(), self.user, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderInvitationView(ResourceView[FolderGrant]):
    """The base of the views of the user's open invitations to folders."""

    queryset = FolderGrant.objects.select_related("folder", "created_by")
    serializer_class: type[Any] = FolderInvitationBody
    lookup_url_kwarg = "grant_id"

    def visible(self, rows: Any) -> QuerySet[FolderGrant]:
        found: QuerySet[FolderGrant] = rows.pending_for(self.user)
        return found


class FolderInvitations(FolderInvitationView, ListAPIView[FolderGrant]):
    """The user's invitations to folders of others."""

    pagination_class = NewestFirst


class FolderInvitationAccept(FolderInvitationView):
    """Accepting an invitation."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=None, responses=FolderBody)
    def post(self, request: Request, grant_id: int) -> Response:
        """Accept the invitation, and return the folder."""
        grant = self.get_object()
        accept_invitation(grant, self.user, now=timezone.now())
        return Response(shown_folder(self.user, grant.folder_id))


class FolderInvitationDecline(FolderInvitationView):
    """Declining an invitation."""

    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request, grant_id: int) -> Response:
        """Decline the invitation; it can be sent again."""
        decline_invitation(self.get_object(), self.user, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTransfer(FolderView):
    """Transferring all folders of one person to another."""

    pagination_class = OnePage
    token_scopes = (Scope.ADMIN, Scope.FOLDERS)

    @extend_schema(request=FolderTransferRequest, responses=FolderBody(many=True))
    def post(self, request: Request) -> Response:
        """Transfer all folders, also those in the trash, and return them; only for administrators of both people.

        A folder gets a number if the new owner already uses its name.
        """
        user = self.user
        if not rules_people(user):
            raise NotFound("Not found, or you have no access.")
        values = values_of(FolderTransferRequest, request.data)
        people = [_ruled(user, values[field], field) for field in ("from_user", "to_user")]
        moved = transfer_folders(user, *people, now=timezone.now())
        rows = self.get_queryset().filter(pk__in=[folder.pk for folder in moved])
        return only_page(FolderBody(rows, many=True).data)


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
