"""Runs code in an interactive session."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.wire.runs import ENDED
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.sign_in.credentials import user_by
from backendai.domain.compute.status import ShareRight
from backendai.gates.gateways.guard import RECHECK_SECONDS
from backendai.gates.gateways.guests import GuestTarget, ask, find_target, note_use
from backendai.gates.gateways.reach import still_visible
from backendai.portal.api.frame.asynchronous import AsyncAPIView
from backendai.portal.api.frame.authentication import credential_of, user_of
from backendai.portal.api.frame.parsing import StrictJSONParser, values_of
from backendai.portal.api.pipelines.run_bodies import (
    CodeRunRequest,
    CompletionRequest,
    ContextEnd,
    ContextRequest,
    RunBody,
    RunInput,
    RunQuery,
    RunsQuery,
)

LARGEST_JSON = 4 * 2**20


class RunJSONParser(StrictJSONParser):
    """Parses JSON with up to 1 MiB of code, escaped."""

    largest = LARGEST_JSON


class GuestView(AsyncAPIView):
    """A view that sends requests to the guest agent of the session's main kernel."""

    token_scopes = (Scope.SESSIONS,)
    parser_classes = [RunJSONParser]

    runs_code = False  # a POST is written to the audit log
    target: GuestTarget

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the user's access to the session before reading the request."""
        super().initial(request, *args, **kwargs)
        user = user_of(request)
        self.target = find_target(user, kwargs["session_id"])
        if self.runs_code and request.method == "POST":
            note_use(user, self.target, by=str(request.auth or request.session.session_key)[:64])

    async def while_open(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces, and break off within seconds when the user may no longer use the session."""
        checked_at = time.monotonic()
        async for piece in pieces:
            if time.monotonic() - checked_at >= RECHECK_SECONDS:
                checked_at = time.monotonic()
                if not await sync_to_async(self._may_go_on)():
                    raise ConnectionAbortedError("the user may no longer use the session")
            yield piece

    async def sent(self, opening: AsyncExitStack, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the content of an answer as ``while_open`` does, and close what was opened for it."""
        async with opening:
            async for piece in self.while_open(content):
                yield piece

    def _may_go_on(self) -> bool:
        credential = credential_of(self.request)
        user = user_by(credential, timezone.now()) if credential else None
        return still_visible(user, self.target.session_id, ShareRight.USE)

    async def ask(self, op: str, **order: Any) -> dict[str, Any]:
        """Send an operation to the guest agent, and return its answer."""
        return await ask(self.target, {"op": op, **order})


class RunList(GuestView):
    """The runs of a session; runs code."""

    runs_code = True

    @extend_schema(parameters=[RunsQuery], responses=dict)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return the newest runs with the beginning of their code, and the contexts; ``before`` leads to older runs."""
        return Response(await self.ask("runs", **values_of(RunsQuery, request.query_params)))

    @extend_schema(request=CodeRunRequest, responses={200: RunBody, 202: RunBody})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Run code: 200 if it has ended within ``wait`` seconds, otherwise 202."""
        wish = values_of(CodeRunRequest, request.data)
        told = await self.ask("run", **{**wish, "options": dict(wish["options"])})
        return Response(told, status.HTTP_200_OK if told.get("state") in ENDED else status.HTTP_202_ACCEPTED)


class RunDetail(GuestView):
    """One run."""

    @extend_schema(parameters=[RunQuery], responses=RunBody)
    async def get(self, request: Request, session_id: UUID, run_id: str) -> Response:
        """Return the state of the run and its items from an offset; optionally waits for new ones."""
        query = values_of(RunQuery, request.query_params)
        return Response(await self.ask("read", run_id=run_id, **query))

    @extend_schema(responses={200: dict})
    async def delete(self, request: Request, session_id: UUID, run_id: str) -> Response:
        """Cancel a queued run, or delete an ended one with its output."""
        return Response(await self.ask("withdraw", run_id=run_id))


class RunCode(GuestView):
    """The code of a run."""

    @extend_schema(responses=dict)
    async def get(self, request: Request, session_id: UUID, run_id: str) -> Response:
        """Return the whole code of a run, and the commands of batch mode."""
        return Response(await self.ask("code", run_id=run_id))


class RunAnswer(GuestView):
    """The input of a run."""

    @extend_schema(request=RunInput, responses={200: dict})
    async def post(self, request: Request, session_id: UUID, run_id: str) -> Response:
        """Answer a run that waits for input."""
        text = values_of(RunInput, request.data)["text"]
        return Response(await self.ask("input", run_id=run_id, text=text))


class RunInterrupt(GuestView):
    """The interruption of a run."""

    @extend_schema(request=None, responses={200: dict})
    async def post(self, request: Request, session_id: UUID, run_id: str) -> Response:
        """Interrupt a run; a queued one is cancelled."""
        return Response(await self.ask("interrupt", run_id=run_id))


class ContextList(GuestView):
    """The interpreters of a session."""

    @extend_schema(responses=dict)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return the contexts of the session."""
        return Response({"results": (await self.ask("runs"))["contexts"]})

    @extend_schema(request=ContextRequest, responses={201: dict})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Create a context of a language; its interpreter starts with its first run."""
        wish = values_of(ContextRequest, request.data)
        told = await self.ask("context", context=wish["name"], language=wish["language"])
        return Response(told, status.HTTP_201_CREATED)


class LanguageList(GuestView):
    """The languages of a session's image."""

    @extend_schema(responses=dict)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return name and title of each language; the first is the default of a context."""
        return Response({"results": (await self.ask("languages"))["languages"]})


class ContextDetail(GuestView):
    """One context with its interpreter."""

    @extend_schema(parameters=[ContextEnd], responses={204: None})
    async def delete(self, request: Request, session_id: UUID, context: str) -> Response:
        """End the interpreter and delete the context; its current run is lost."""
        await self.ask("delete-context", context=context, **values_of(ContextEnd, request.query_params))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ContextRestart(GuestView):
    """Restarting the interpreter of a context."""

    @extend_schema(request=None, responses={200: dict})
    async def post(self, request: Request, session_id: UUID, context: str) -> Response:
        """End the interpreter with its current run; the next run gets a new one."""
        return Response(await self.ask("restart", context=context))


class Completion(GuestView):
    """Completions of code."""

    @extend_schema(request=CompletionRequest, responses={200: dict})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Return completions at the cursor, or ``busy`` within a second."""
        return Response(await self.ask("complete", **values_of(CompletionRequest, request.data)))
