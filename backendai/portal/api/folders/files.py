"""The files of a folder and the folder's own trash: lists, moves, copies and deletes them.

The contents of files do not pass through here.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.storage.entries import FolderFiles, open_folder
from backendai.domain.storage.services import direct_ticket
from backendai.portal.api.folders.bodies import FolderTicketBody, FolderTicketRequest
from backendai.portal.api.folders.file_bodies import (
    DeletionRequest,
    DirectoryRequest,
    EntriesBody,
    EntriesQuery,
    FolderMoveRequest,
    ItemRestoreRequest,
    OperationBody,
    PathBody,
    TrashBody,
    TrashedListBody,
    TrashQuery,
)
from backendai.portal.api.folders.views import FolderView
from backendai.portal.api.frame.parsing import values_of


class FolderFilesView(FolderView):
    """The base of the views of a folder's files."""

    def files(self, *, to_edit: bool = False) -> FolderFiles:
        """Return the files of the folder in the address. Raises 404, or NotAllowed without the rights to edit them."""
        return open_folder(self.user, self.get_object(), to_edit=to_edit)


class FolderEntries(FolderFilesView):
    """A directory of a folder."""

    serializer_class = EntriesBody

    @extend_schema(parameters=[EntriesQuery], responses=EntriesBody)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return a page of the directory; 503 ``storage-silent`` if its storage host does not answer in 3 s."""
        return Response(self.files().entries(values_of(EntriesQuery, request.query_params.dict())))


class FolderDirectories(FolderFilesView):
    """Creating directories."""

    serializer_class = PathBody

    @extend_schema(request=DirectoryRequest, responses={201: PathBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Create a directory; 409 ``exists`` if there is one."""
        files = self.files(to_edit=True)
        made = files.make_directory(values_of(DirectoryRequest, request.data)["path"])
        return Response(made, status=status.HTTP_201_CREATED)


class FolderMoves(FolderFilesView):
    """Moving and renaming files."""

    serializer_class = PathBody

    @extend_schema(request=FolderMoveRequest, responses=PathBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Move a file or directory inside the folder; 409 ``exists``, unless ``overwrite`` or ``keep_both``."""
        files = self.files(to_edit=True)
        return Response(files.move(**values_of(FolderMoveRequest, request.data)))


class FolderCopies(FolderFilesView):
    """Copying files."""

    serializer_class = PathBody

    @extend_schema(request=FolderMoveRequest, responses={200: PathBody, 202: OperationBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Copy a file or directory inside the folder; 409 ``exists``, unless ``overwrite`` or ``keep_both``.

        A copy that takes longer than 2 s continues as an operation.
        """
        files = self.files(to_edit=True)
        return _done(folder_id, files.copy(**values_of(FolderMoveRequest, request.data)))


class FolderDeletions(FolderFilesView):
    """Deleting files."""

    serializer_class = TrashBody

    @extend_schema(request=DeletionRequest, responses={200: TrashedListBody, 202: OperationBody})
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Move files and directories to the trash of the folder, which keeps them for some days.

        A deletion that takes longer than 2 s continues as an operation.
        """
        files = self.files(to_edit=True)
        return _done(folder_id, files.delete(values_of(DeletionRequest, request.data)["paths"]))


class FolderOperation(FolderFilesView):
    """A copy or deletion that takes long."""

    serializer_class = OperationBody

    @extend_schema(responses=OperationBody)
    def get(self, request: Request, folder_id: UUID, operation: str) -> Response:
        """Return the operation's progress; waits up to 2 s for its end. It is kept for 10 minutes after that."""
        return Response(self.files(to_edit=True).operation(operation))

    @extend_schema(responses={200: OperationBody})
    def delete(self, request: Request, folder_id: UUID, operation: str) -> Response:
        """Stop the operation: deleted files stay deleted, and an incomplete copy is removed."""
        return Response(self.files(to_edit=True).stop(operation))


class FolderTrash(FolderFilesView):
    """Deleted files of a folder."""

    serializer_class = TrashBody

    @extend_schema(parameters=[TrashQuery], responses=TrashBody)
    def get(self, request: Request, folder_id: UUID) -> Response:
        """Return a page of the trash."""
        return Response(self.files().trash(values_of(TrashQuery, request.query_params.dict()).get("after")))

    def delete(self, request: Request, folder_id: UUID) -> Response:
        """Empty the trash."""
        self.files(to_edit=True).empty_trash()
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTrashItem(FolderFilesView):
    """One file in the trash of a folder."""

    serializer_class = TrashBody

    def delete(self, request: Request, folder_id: UUID, item: str) -> Response:
        """Delete the file permanently."""
        self.files(to_edit=True).forget(item)
        return Response(status=status.HTTP_204_NO_CONTENT)


class FolderTrashRestore(FolderFilesView):
    """Restoring a file from the trash of its folder."""

    serializer_class = PathBody

    @extend_schema(request=ItemRestoreRequest, responses=PathBody)
    def post(self, request: Request, folder_id: UUID, item: str) -> Response:
        """Move the file back to its path; 409 ``exists``, unless ``overwrite`` or ``keep_both``."""
        files = self.files(to_edit=True)
        return Response(files.restore(item, **values_of(ItemRestoreRequest, request.data)))


class FolderTicket(FolderFilesView):
    """Direct access to the file server of a folder."""

    serializer_class = FolderTicketBody

    @extend_schema(request=FolderTicketRequest, responses=FolderTicketBody)
    def post(self, request: Request, folder_id: UUID) -> Response:
        """Return a ticket for the folder's files; 409 ``no-direct-access`` if scripts cannot reach the file server."""
        found = direct_ticket(self.user, self.get_object(), values_of(FolderTicketRequest, request.data)["rights"])
        shown = {"ticket": found.ticket, "address": found.address, "expires_in": found.expires_in}
        return Response(shown, headers={"Cache-Control": "no-store"})


def _done(folder_id: UUID, answer: dict[str, Any]) -> Response:
    """Return the result of a change. A long operation gets status 202, and its address in ``Location``."""
    if "operation" not in answer:
        return Response(answer)
    where = reverse("api:folder-operation", args=[folder_id, answer["operation"]])
    return Response(answer, status=status.HTTP_202_ACCEPTED, headers={"Location": where})
