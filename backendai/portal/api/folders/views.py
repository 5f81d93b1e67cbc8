"""Folders: lists, creates, changes, copies, deletes and restores them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import django_filters.rest_framework as filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
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
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import check_seen, tag_of
from backendai.portal.api.frame.views import ResourceView

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


class FolderView(ResourceView[Folder]):
    """The base of the views of folders."""

    queryset = Folder.objects.select_related("host", "user", "project__domain")
    serializer_class: type[Any] = FolderBody
    lookup_url_kwarg = "folder_id"
    token_scopes: tuple[Scope, ...] = (Scope.FOLDERS,)

    def shown(self, pk: UUID, code: int = status.HTTP_200_OK) -> Response:
        """Return the folder with this key as it is stored now."""
        return Response(shown_folder(self.user, pk), code)


class FolderList(FolderView, ListAPIView[Folder]):
    """The visible folders; creates one."""

    pagination_class = ByName
    filterset_class = FolderFilter

    @extend_schema(request=FolderRequest, responses={201: FolderBody})
    def post(self, request: Request) -> Response:
        """Create a folder. It is ``CREATING`` until its storage host has created it.

        409 ``name-taken``, ``too-many-folders``, ``folder-bytes``, ``limit-needed``.
        """
        user, now = self.user, timezone.now()
        data = values_of(FolderRequest, request.data)
        host, project = host_named(user, data.pop("host", "")), _project(user, data.pop("project", None))
        path = data.pop("linked_path", "")
        if path:
            made = link_folder(user, name=data["name"], path=path, host=host, project=project, now=now)
        else:
            made = create_folder(user, host=host, project=project, now=now, **data)
        return self.shown(made.pk, status.HTTP_201_CREATED)


class FolderDetail(FolderView):
    """One folder."""

    is_versioned = True

    def tagged(self, folder_id: UUID) -> Response:
        """Return the folder as it is stored now, with its tag."""
        shown = shown_folder(self.user, folder_id)
        return Response(shown, headers={"ETag": tag_of(shown)})

    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return the folder."""
        return self.tagged(folder_id)

    @extend_schema(request=FolderChange, responses=FolderBody)
    def patch(self, request: Request, folder_id: UUID) -> Response:
        """Change the given fields, all or none."""
        folder, values = self.get_object(), values_of(FolderChange, request.data)

        def check() -> None:
            check_seen(request, shown_folder(self.user, folder_id))

        change_folder(folder, self.user, values, check=check, now=timezone.now())
        return self.tagged(folder_id)

    @extend_schema(responses={200: FolderBody})
    def delete(self, request: Request, folder_id: UUID) -> Response:
        """Move the folder to the trash; 409 ``folder-mounted`` with the ``sessions`` that mount it."""
        trash_folder(self.get_object(), self.user, now=timezone.now())
        return self.shown(folder_id)


class FolderRestore(FolderView):
    """Restoring a folder from the trash."""

    @extend_schema(request=FolderRestoreRequest, responses=FolderBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Restore the folder, optionally under another name."""
        name = values_of(FolderRestoreRequest, request.data).get("name", "")
        restore_folder(self.get_object(), self.user, name=name, now=timezone.now())
        return self.shown(folder_id)


class FolderRetry(FolderView):
    """Retrying a failed creation of a folder."""

    @extend_schema(request=None, responses=FolderBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Try again to create the folder; 409 ``folder-status`` unless it has failed."""
        retry_folder(self.get_object(), self.user, now=timezone.now())
        return self.shown(folder_id)


class FolderPurge(FolderView):
    """Deleting a folder in the trash permanently."""

    @extend_schema(request=FolderPurgeRequest, responses={202: None})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Delete the folder with its files; ``name`` is its name, as confirmation."""
        folder, name = self.get_object(), values_of(FolderPurgeRequest, request.data)["name"]
        purge_folder(folder, self.user, typed_name=name, now=timezone.now())
        return Response(status=status.HTTP_202_ACCEPTED)


class FolderClone(FolderView):
    """Copying a folder."""

    @extend_schema(request=FolderCloneRequest, responses={201: FolderBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Create a copy, which is ``CREATING`` until every file is copied; ``status_message`` shows the progress."""
        user, folder = self.user, self.get_object()
        data = values_of(FolderCloneRequest, request.data)
        project = _project(user, data.pop("project", None))
        host = host_named(user, data.pop("host"))
        made = clone_folder(folder, user, project=project, host=host, now=timezone.now(), **data)
        return self.shown(made.pk, status.HTTP_201_CREATED)


def shown_folder(user: User, folder_id: UUID) -> dict[str, Any]:
    """Return one folder as its answer; 404 if it is not visible."""
    return FolderBody(get_object_or_404(FolderView.queryset.visible_to(user), pk=folder_id)).data


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
