"""Folders: lists, creates, changes, copies, deletes and restores them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import django_filters.rest_framework as filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import (
    change_folder,
    clone_folder,
    create_folder,
    link_folder,
    purge_folder,
    restore_folder,
    retry_folder,
    trash_folder,
)
from backendai.domain.storage.status import LIVE, FolderStatus, Usage
from backendai.portal.api.folders.bodies import (
    FolderBody,
    FolderChange,
    FolderCloneRequest,
    FolderPurgeRequest,
    FolderRequest,
    FolderRestoreRequest,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.filters import RequestedFilters
from backendai.portal.api.frame.idempotency import idempotency_key
from backendai.portal.api.frame.paging import ByName

_STATUSES = [(str(status), FolderStatus(status).label) for status in sorted(LIVE)]


class FolderFilter(filters.FilterSet):
    """Filters folders; ``status`` may be given several times."""

    status = filters.MultipleChoiceFilter(choices=_STATUSES)
    name = filters.CharFilter(max_length=64)
    host = filters.CharFilter(field_name="host__name", max_length=32)
    owner = filters.CharFilter(field_name="user__email", lookup_expr="iexact", max_length=254)
    project = filters.UUIDFilter(field_name="project", help_text="ID.")
    usage = filters.ChoiceFilter(choices=Usage.choices)
    offered = filters.BooleanFilter(
        method="filter_offered", help_text="true: ready folders of the user, shared with them, or of their projects."
    )

    class Meta:
        model = Folder
        fields: list[str] = []

    def filter_offered(self, queryset: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        """Return the folders that the launcher offers to the user, or with False the other visible ones."""
        user = getattr(self.request, "user", None)
        if not isinstance(user, User):
            return queryset.none()
        offered = Folder.objects.offered_to(user).order_by().values("pk")
        return queryset.filter(pk__in=offered) if value else queryset.exclude(pk__in=offered)


KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="Sent again, it makes nothing new.")


class FolderList(ListAPIView[Folder]):
    """The visible folders; creates one."""

    queryset = Folder.objects.none()
    serializer_class = FolderBody
    pagination_class = ByName
    filterset_class = FolderFilter
    filter_backends = [RequestedFilters]
    token_scopes = (Scope.FOLDERS,)

    def get_queryset(self) -> QuerySet[Folder]:
        """Return the visible folders with everything that an answer contains."""
        return shown_folders(user_of(self.request))

    @extend_schema(request=FolderRequest, responses={201: FolderBody}, parameters=[KEY])
    def post(self, request: Request) -> Response:
        """Create a folder, or return the one created before with the same idempotency key.

        It is ``CREATING`` until its storage host has created it. 409 ``name-taken``, ``too-many-folders``,
        ``folder-bytes``, ``limit-needed``.
        """
        user, now = user_of(request), timezone.now()
        data = _checked(FolderRequest, request)
        host, project = host_named(user, data.pop("host", "")), _project(user, data.pop("project", None))
        path = data.pop("linked_path", "")
        if path:
            made = link_folder(user, name=data["name"], path=path, host=host, project=project, now=now)
        else:
            key = idempotency_key(request)
            made = create_folder(user, host=host, project=project, idempotency_key=key, now=now, **data)
        return Response(shown_folder(user, made.pk), status=status.HTTP_201_CREATED)


class FolderDetail(GenericAPIView[Folder]):
    """One folder."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)
    filter_backends: list[Any] = []

    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return the folder."""
        return Response(shown_folder(user_of(request), folder_id))

    @extend_schema(request=FolderChange, responses=FolderBody)
    def patch(self, request: Request, folder_id: UUID) -> Response:
        """Change the given fields, all or none."""
        user = user_of(request)
        folder = visible_folder(user, folder_id)
        change_folder(folder, user, _checked(FolderChange, request), now=timezone.now())
        return Response(shown_folder(user, folder_id))

    @extend_schema(responses={200: FolderBody})
    def delete(self, request: Request, folder_id: UUID) -> Response:
        """Move the folder to the trash; 409 ``folder-mounted`` with the ``sessions`` that mount it."""
        user = user_of(request)
        trash_folder(visible_folder(user, folder_id), user, now=timezone.now())
        return Response(shown_folder(user, folder_id))


class FolderRestore(GenericAPIView[Folder]):
    """Restoring a folder from the trash."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=FolderRestoreRequest, responses=FolderBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Restore the folder, optionally under another name."""
        user = user_of(request)
        name = _checked(FolderRestoreRequest, request).get("name", "")
        restore_folder(visible_folder(user, folder_id), user, name=name, now=timezone.now())
        return Response(shown_folder(user, folder_id))


class FolderRetry(GenericAPIView[Folder]):
    """Retrying a failed creation of a folder."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=None, responses=FolderBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Try again to create the folder; 409 ``folder-status`` unless it has failed."""
        user = user_of(request)
        retry_folder(visible_folder(user, folder_id), user, now=timezone.now())
        return Response(shown_folder(user, folder_id))


class FolderPurge(GenericAPIView[Folder]):
    """Deleting a folder in the trash permanently."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=FolderPurgeRequest, responses={202: None})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Delete the folder with its files; ``name`` is its name, as confirmation."""
        user = user_of(request)
        folder = visible_folder(user, folder_id)
        name = _checked(FolderPurgeRequest, request)["name"]
        purge_folder(folder, user, typed_name=name, now=timezone.now())
        return Response(status=status.HTTP_202_ACCEPTED)


class FolderClone(GenericAPIView[Folder]):
    """Copying a folder."""

    serializer_class = FolderBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=FolderCloneRequest, responses={201: FolderBody}, parameters=[KEY])
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Create a copy, which is ``CREATING`` until every file is copied; ``status_message`` shows the progress."""
        user = user_of(request)
        folder = visible_folder(user, folder_id)
        data = _checked(FolderCloneRequest, request)
        project = _project(user, data.pop("project", None))
        host, key = host_named(user, data.pop("host")), idempotency_key(request)
        made = clone_folder(folder, user, project=project, host=host, idempotency_key=key, now=timezone.now(), **data)
        return Response(shown_folder(user, made.pk), status=status.HTTP_201_CREATED)


def shown_folders(user: User) -> QuerySet[Folder]:
    """Return the visible folders with everything that a response contains."""
    rows: QuerySet[Folder] = Folder.objects.visible_to(user).select_related("host", "user", "project__domain")
    return rows


def shown_folder(user: User, folder_id: UUID) -> dict[str, Any]:
    """Return one folder as its answer; 404 if it is not visible."""
    return FolderBody(get_object_or_404(shown_folders(user), pk=folder_id)).data


def visible_folder(user: User, folder_id: UUID) -> Folder:
    """Return the folder; 404 if it is not visible."""
    found: Folder = get_object_or_404(shown_folders(user), pk=folder_id)
    return found


def host_named(user: User, name: str) -> StorageHost | None:
    """Return the visible storage host of this name, or None for an empty name.

    Raises UserError if it does not exist.
    """
    if not name:
        return None
    host: StorageHost | None = StorageHost.objects.visible_to(user).filter(name=name).first()
    if host is None:
        raise UserError("Storage host not found.", field="host", code="unknown-host")
    return host


def _project(user: User, pk: UUID | None) -> Project | None:
    if pk is None:
        return None
    project: Project | None = Project.objects.managed_by(user).filter(pk=pk).first()
    if project is None:
        raise UserError("Project not found, or you do not manage it.", field="project", code="unknown-project")
    return project


def _checked(kind: Any, request: Request) -> dict[str, Any]:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)
