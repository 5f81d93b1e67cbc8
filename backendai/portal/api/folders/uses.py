"""The sessions that mount a folder, and the folder's size."""

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

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.compute.services.life.folder_cuts import terminate_mounting_session
from backendai.domain.storage.permissions import allows
from backendai.domain.storage.querysets import MANAGE
from backendai.gates.gateways.folder_cuts import unmount
from backendai.portal.api.folders.bodies import FolderCutRequest, FolderSizeBody, FolderUsageBody, FolderUseBody
from backendai.portal.api.folders.views import visible_folder
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst

_MOST_DAYS = 366


class FolderUses(ListAPIView[SessionMount]):
    """The sessions that mount or mounted a folder: all for people who manage it, otherwise the user's own."""

    queryset = SessionMount.objects.none()
    serializer_class = FolderUseBody
    pagination_class = NewestFirst
    filter_backends = []

    def get_queryset(self) -> QuerySet[SessionMount]:
        """Return the mounts."""
        if getattr(self, "swagger_fake_view", False):
            return SessionMount.objects.none()
        user = user_of(self.request)
        folder: Any = visible_folder(user, self.kwargs["folder_id"])
        rows: QuerySet[SessionMount] = folder.mounts.select_related("session__owner").order_by()
        if allows(folder.rights, MANAGE):
            return rows
        return rows.filter(session__in=ComputeSession.objects.visible_to(user).order_by().values("pk"))


class FolderCutOff(GenericAPIView[SessionMount]):
    """Ending the access of a session to a folder."""

    token_scopes = (Scope.FOLDERS,)
    queryset = SessionMount.objects.none()
    serializer_class = FolderUseBody

    @extend_schema(request=FolderCutRequest, responses={200: FolderUseBody, 202: FolderUseBody})
    def post(self, request: Request, folder_id: UUID, session_id: UUID) -> Response:
        """End a session that mounts the folder without rights; 409 while its owner still has them.

        With ``keep_session`` the folder is unmounted instead and the session continues; 409 if its agent cannot do
        that.
        """
        user, folder = user_of(request), visible_folder(user_of(request), folder_id)
        wish = FolderCutRequest(data=request.data)
        wish.is_valid(raise_exception=True)
        if wish.validated_data["keep_session"]:
            mount, _ = unmount(user, folder, session_id, now=timezone.now())
            return Response(FolderUseBody(mount).data)
        mount = terminate_mounting_session(user, folder, session_id, now=timezone.now())
        return Response(FolderUseBody(mount).data, status=status.HTTP_202_ACCEPTED)


class FolderUsage(GenericAPIView[Any]):
    """The size of a folder, now and by day."""

    serializer_class = FolderUsageBody
    filter_backends: list[Any] = []

    @extend_schema(responses=FolderUsageBody)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return the folder's size by day for the last year; measured once a day."""
        folder = visible_folder(user_of(request), folder_id)
        days = folder.sizes.order_by("-day")[:_MOST_DAYS]
        shown = {
            "used_bytes": folder.used_bytes,
            "used_files": folder.used_files,
            "limit_bytes": folder.limit_bytes,
            "measured_at": folder.measured_at,
            "days": FolderSizeBody(days, many=True).data,
        }
        return Response(shown)
