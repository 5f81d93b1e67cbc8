"""The files of a folder and the folder's own trash: lists, moves, copies and deletes them.

The contents of files do not pass through here.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.storage.entries import FolderFiles, open_folder
from backendai.domain.storage.services import direct_ticket
from backendai.portal.api.folders.bodies import FolderTicketBody, FolderTicketRequest
from backendai.portal.api.folders.file_bodies import (
    DeletionRequest,
    DirectoryRequest,
    EntriesBody,
    EntriesQuery,
    EntryBody,
    FolderMoveRequest,
    ItemRestoreRequest,
    OperationBody,
    TrashBody,
    TrashQuery,
)
from backendai.portal.api.folders.views import visible_folder
from backendai.portal.api.frame.authentication import user_of


class FolderEntries(GenericAPIView[Any]):
    """A directory of a folder."""

    serializer_class = EntriesBody
    filter_backends: list[Any] = []

    @extend_schema(parameters=[EntriesQuery], responses=EntriesBody)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return a page of the directory; 503 ``storage-silent`` if its storage host does not answer in 3 s."""
        return Response(_files(request, folder_id).entries(_query(EntriesQuery, request)))


class FolderDirectories(GenericAPIView[Any]):
    """Creating directories."""

    serializer_class = EntryBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=DirectoryRequest, responses={201: EntryBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Create a directory; 409 ``exists`` if there is one."""
        files = _files(request, folder_id, to_edit=True)
        made = files.make_directory(_body(DirectoryRequest, request)["path"])
        return Response(made, status=status.HTTP_201_CREATED)


class FolderMoves(GenericAPIView[Any]):
    """Moving and renaming files."""

    serializer_class = EntryBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=FolderMoveRequest, responses=EntryBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Move a file or directory inside the folder; 409 ``exists``, unless ``overwrite`` or ``keep_both``."""
        files = _files(request, folder_id, to_edit=True)
        return Response(files.move(**_body(FolderMoveRequest, request)))


class FolderCopies(GenericAPIView[Any]):
    """Copying files."""

    serializer_class = EntryBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=FolderMoveRequest, responses={200: EntryBody, 202: OperationBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Copy a file or directory inside the folder; 409 ``exists``, unless ``overwrite`` or ``keep_both``.

        A copy that takes longer than 2 s continues as an operation.
        """
        files = _files(request, folder_id, to_edit=True)
        return _done(folder_id, files.copy(**_body(FolderMoveRequest, request)))


class FolderDeletions(GenericAPIView[Any]):
    """Deleting files."""

    serializer_class = TrashBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=DeletionRequest, responses={200: None, 202: OperationBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Move files and directories to the trash of the folder, which keeps them for some days.

        A deletion that takes longer than 2 s continues as an operation.
        """
        files = _files(request, folder_id, to_edit=True)
        return _done(folder_id, files.delete(_body(DeletionRequest, request)["paths"]))


class FolderOperation(GenericAPIView[Any]):
    """A copy or deletion that takes long."""

    serializer_class = OperationBody
    token_scopes = (Scope.FOLDERS,)
    filter_backends: list[Any] = []

    @extend_schema(responses=OperationBody)
    def get(self, request: Request, folder_id: UUID, operation: str) -> Response:
        """Return the operation's progress; waits up to 2 s for its end. It is kept for 10 minutes after that."""
        return Response(_files(request, folder_id, to_edit=True).operation(operation))

    @extend_schema(responses={200: OperationBody})
    def delete(self, request: Request, folder_id: UUID, operation: str) -> Response:
        """Stop the operation: deleted files stay deleted, and an incomplete copy is removed."""
        return Response(_files(request, folder_id, to_edit=True).stop(operation))


class FolderTrash(GenericAPIView[Any]):
    """Deleted files of a folder."""

    serializer_class = TrashBody
    token_scopes = (Scope.FOLDERS,)
    filter_backends: list[Any] = []

    @extend_schema(parameters=[TrashQuery], responses=TrashBody)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return a page of the trash."""
        return Response(_files(request, folder_id).trash(_query(TrashQuery, request).get("after")))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, folder_id: UUID) -> Response:
        """Empty the trash."""
        _files(request, folder_id, to_edit=True).empty_trash()
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTrashItem(GenericAPIView[Any]):
    """One file in the trash of a folder."""

    serializer_class = TrashBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(operation_id="v1_folders_trash_item_destroy", responses={204: None})
    def delete(self, request: Request, folder_id: UUID, item: str) -> Response:
        """Delete the file permanently."""
        _files(request, folder_id, to_edit=True).forget(item)
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTrashRestore(GenericAPIView[Any]):
    """Restoring a file from the trash of its folder."""

    serializer_class = EntryBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=ItemRestoreRequest, responses=EntryBody)
    def post(self, request: Request, folder_id: UUID, item: str) -> Response:
        """Move the file back to its path; 409 ``exists``, unless ``overwrite`` or ``keep_both``."""
        files = _files(request, folder_id, to_edit=True)
        return Response(files.restore(item, **_body(ItemRestoreRequest, request)))


class FolderTicket(GenericAPIView[Any]):
    """Direct access to the file server of a folder."""

    serializer_class = FolderTicketBody
    token_scopes = (Scope.FOLDERS,)

    @extend_schema(request=FolderTicketRequest, responses=FolderTicketBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Return a ticket for the folder's files; 409 ``no-direct-access`` if scripts cannot reach the file server."""
        folder = visible_folder(user_of(request), folder_id)
        found = direct_ticket(user_of(request), folder, _body(FolderTicketRequest, request)["rights"])
        shown = {"ticket": found.ticket, "address": found.address, "expires_in": found.expires_in}
        return Response(shown, headers={"Cache-Control": "no-store"})


def _files(request: Request, folder_id: UUID, *, to_edit: bool = False) -> FolderFiles:
    user = user_of(request)
    return open_folder(user, visible_folder(user, folder_id), to_edit=to_edit)


def _done(folder_id: UUID, answer: dict[str, Any]) -> Response:
    """Return the result of a change. A long operation gets status 202, and its address in ``Location``."""
    if "operation" not in answer:
        return Response(answer)
    where = reverse("api:folder-operation", args=[folder_id, answer["operation"]])
    return Response(answer, status=status.HTTP_202_ACCEPTED, headers={"Location": where})


def _body(kind: Any, request: Request) -> dict[str, Any]:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def _query(kind: Any, request: Request) -> dict[str, Any]:
    query = kind(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)
