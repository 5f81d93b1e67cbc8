"""The sessions that mount a folder, and the folder's size."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.compute.services.life.folder_cuts import terminate_mounting_session
from backendai.domain.storage.models import Folder
from backendai.domain.storage.permissions import allows
from backendai.domain.storage.querysets import MANAGE
from backendai.gates.gateways.folder_cuts import unmount
from backendai.portal.api.folders.bodies import FolderCutRequest, FolderSizeBody, FolderUsageBody, FolderUseBody
from backendai.portal.api.folders.views import FolderView
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.views import ResourceView

_MOST_DAYS = 366


class FolderUses(ResourceView[SessionMount], ListAPIView[SessionMount]):
    """The sessions that mount or mounted a folder: all for people who manage it, otherwise the user's own."""

    queryset = SessionMount.objects.select_related("session__owner")
    serializer_class = FolderUseBody
    pagination_class = NewestFirst

    def visible(self, rows: Any) -> QuerySet[SessionMount]:
        """Return the mounts of the folder in the address."""
        folder: Any = get_object_or_404(Folder.objects.visible_to(self.user), pk=self.kwargs["folder_id"])
        found: QuerySet[SessionMount] = rows.filter(folder=folder).order_by()
        if allows(folder.rights, MANAGE):
            return found
        return found.filter(session__in=ComputeSession.objects.visible_to(self.user).order_by().values("pk"))


class FolderCutOff(FolderView):
    """Ending the access of a session to a folder."""

    serializer_class = FolderUseBody

    @extend_schema(request=FolderCutRequest, responses={200: FolderUseBody, 202: FolderUseBody})
    def post(self, request: Request, folder_id: UUID, session_id: UUID) -> Response:
        """End a session that mounts the folder without rights; 409 while its owner still has them.

        With ``keep_session`` the folder is unmounted instead and the session continues; 409 if its agent cannot do
        that.
        """
        user, folder = self.user, self.get_object()
        values = values_of(FolderCutRequest, request.data)
        if values["keep_session"]:
            mount, _ = unmount(user, folder, session_id, now=timezone.now())
            return Response(FolderUseBody(mount).data)
        mount = terminate_mounting_session(user, folder, session_id, now=timezone.now())
        return Response(FolderUseBody(mount).data, status=status.HTTP_202_ACCEPTED)


class FolderUsage(FolderView):
    """The size of a folder, now and by day."""

    serializer_class = FolderUsageBody

    @extend_schema(responses=FolderUsageBody)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return the folder's size by day for the last year; measured once a day."""
        folder = self.get_object()
        days = folder.sizes.order_by("-day")[:_MOST_DAYS]
        shown = {
            "used_bytes": folder.used_bytes,
            "used_files": folder.used_files,
            "limit_bytes": folder.limit_bytes,
            "measured_at": folder.measured_at,
            "days": FolderSizeBody(days, many=True).data,
        }
        return Response(shown)
