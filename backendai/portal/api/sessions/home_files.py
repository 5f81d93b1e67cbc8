"""The home folder of a running interactive session: lists, searches, moves, deletes and downloads its files.

The guest agent in the session does the work, with the rights of its user.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from uuid import UUID

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.services.life.home_retention import keep_home
from backendai.gates.gateways.homes import ask_home, zip_of
from backendai.portal.api.folders.bodies import FolderBody, KeepHomeRequest
from backendai.portal.api.folders.file_bodies import DirectoryRequest, EntriesBody, EntryBody, MoveRequest
from backendai.portal.api.folders.views import host_named, shown_folder
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.pipelines.runs import GuestView
from backendai.portal.api.sessions.views import OneSessionView

_LONGEST = 4096
_RAW_HELP = "Relative to the home folder. Of a name that is not UTF-8: //raw: and its path as base64url."


def _path(**options: object) -> serializers.CharField:
    return serializers.CharField(max_length=_LONGEST, trim_whitespace=False, **options)  # type: ignore[arg-type]


class HomePathQuery(StrictSerializer):
    """A file or directory."""

    path = _path(required=False, allow_blank=True, default="", help_text=_RAW_HELP)


class HomeEntriesQuery(HomePathQuery):
    """A page of a directory."""

    limit = serializers.IntegerField(required=False, min_value=1, max_value=1000, help_text="Entries; default 200.")
    after = _path(required=False, allow_blank=True, help_text="``next`` of the previous page; empty: the first page.")
    sort = serializers.ChoiceField(choices=["name", "size", "mtime"], required=False)
    order = serializers.ChoiceField(choices=["asc", "desc"], required=False)


class HomeSearchQuery(HomePathQuery):
    """The text to search for, and the directory to start in."""

    q = serializers.CharField(max_length=200, help_text="A part of the name; upper and lower case are equal.")


class HomeDeletionRequest(StrictSerializer):
    """Files and directories to delete permanently."""

    paths = serializers.ListField(child=_path(), min_length=1, max_length=1000)


_MOST_PATHS = 1000
_PATHS = OpenApiParameter("path", str, many=True, description="What to pack; again for more. None: all of the home.")


class HomeEntries(GuestView):
    """A directory of the home folder."""

    @extend_schema(parameters=[HomeEntriesQuery], responses=EntriesBody)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return a page of the directory."""
        query = values_of(HomeEntriesQuery, request.query_params.dict())
        return Response(await ask_home(self.target, "list", **query))


class HomeEntry(GuestView):
    """A file or directory of the home folder."""

    @extend_schema(parameters=[HomePathQuery], responses=EntryBody)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return the file or directory."""
        query = values_of(HomePathQuery, request.query_params.dict())
        return Response(await ask_home(self.target, "stat", **query))


class HomeSearch(GuestView):
    """Searching files in the home folder."""

    @extend_schema(parameters=[HomeSearchQuery], responses=dict)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return the entries whose name contains the text, at most 500.

        ``complete`` is false if there may be more, or after 10 s.
        """
        query = values_of(HomeSearchQuery, request.query_params.dict())
        return Response(await ask_home(self.target, "find", **query))


class HomeDirectories(GuestView):
    """Creating directories."""

    @extend_schema(request=DirectoryRequest, responses={201: EntryBody})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Create a directory; 409 ``exists`` if there is one."""
        made = await ask_home(self.target, "mkdir", **values_of(DirectoryRequest, request.data))
        return Response(made, status=status.HTTP_201_CREATED)


class HomeMoves(GuestView):
    """Moving and renaming files."""

    @extend_schema(request=MoveRequest, responses=EntryBody)
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Move a file or directory; 409 ``exists``, unless ``overwrite``, and ``mounted`` if it contains a mount."""
        return Response(await ask_home(self.target, "rename", **values_of(MoveRequest, request.data)))


class HomeDeletions(GuestView):
    """Deleting files."""

    @extend_schema(request=HomeDeletionRequest, responses={200: dict})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Delete files and directories permanently: home folders have no trash.

        409 ``mounted`` if one contains a mount.
        """
        return Response(await ask_home(self.target, "remove", **values_of(HomeDeletionRequest, request.data)))


class HomeArchive(GuestView):
    """Files and directories of the home folder as one ZIP archive."""

    @extend_schema(parameters=[_PATHS], responses={(200, "application/zip"): OpenApiTypes.BINARY})
    async def get(self, request: Request, session_id: UUID) -> StreamingHttpResponse:
        """Return the archive, without mounted folders, links and special files."""
        opening = AsyncExitStack()
        try:
            paths = request.query_params.getlist("path")[:_MOST_PATHS] or [""]
            content = await opening.enter_async_context(zip_of(self.target, paths))
        except BaseException:
            await opening.aclose()
            raise
        answer = StreamingHttpResponse(self.sent(opening, content), content_type="application/zip")
        answer["Content-Disposition"] = 'attachment; filename="home.zip"'
        answer["Cache-Control"] = "no-store"
        return answer


class SessionHome(OneSessionView):
    """Keeping the home folder of a session."""

    serializer_class = FolderBody
    token_scopes = (Scope.SESSIONS, Scope.FOLDERS)

    @extend_schema(request=KeepHomeRequest, responses={202: FolderBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Start to copy the home folder into a new folder, which is READY once all files are copied."""
        session, values = self.get_object(), values_of(KeepHomeRequest, request.data)
        host = host_named(self.user, values.pop("host", ""))
        made = keep_home(self.user, session, host=host, now=timezone.now(), **values)
        return Response(shown_folder(self.user, made.pk), status=status.HTTP_202_ACCEPTED)
