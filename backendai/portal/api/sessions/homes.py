"""Copies the home folder of a running session into a new folder."""

from __future__ import annotations

from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.home_retention import keep_home
from backendai.domain.storage.models import Folder
from backendai.portal.api.folders.bodies import FolderBody, KeepHomeRequest
from backendai.portal.api.folders.views import host_named, shown_folder
from backendai.portal.api.frame.authentication import user_of


class SessionHome(GenericAPIView[Folder]):
    """Keeping the home folder of a session."""

    queryset = Folder.objects.none()
    serializer_class = FolderBody
    token_scopes = (Scope.SESSIONS, Scope.FOLDERS)

    @extend_schema(request=KeepHomeRequest, responses={202: FolderBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Start to copy the home folder into a new folder, which is READY once all files are copied."""
        user = user_of(request)
        session = get_object_or_404(ComputeSession.objects.visible_to(user), pk=session_id)
        body = KeepHomeRequest(data=request.data)
        body.is_valid(raise_exception=True)
        data = dict(body.validated_data)
        host = host_named(user, data.pop("host", ""))
        made = keep_home(user, session, host=host, now=timezone.now(), **data)
        return Response(shown_folder(user, made.pk), status=status.HTTP_202_ACCEPTED)
