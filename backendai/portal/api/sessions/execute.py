"""Code execution in the form of the original Backend.AI, and the files of a session."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

from django.http import StreamingHttpResponse
from django.utils.http import quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.base.wire.runs import ENDED, FILE_CHUNK, LARGEST_FILE
from backendai.gates.gateways.guests import file_of, put_file
from backendai.portal.api.frame.errors import BodyTooLarge
from backendai.portal.api.frame.multipart import files_in
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.streamed_body import StreamedBody
from backendai.portal.api.pipelines.run_bodies import ExecuteRequest
from backendai.portal.api.pipelines.runs import GuestView

_PATIENCE = 2.0
_BEHIND_ALL = 2**62  # an offset without output: only the state is read there
_MOST_FILES = 100
_RESENT = OpenApiParameter("resent", bool, description="1: the answer to an earlier try was lost.")
_IMAGES = {"image/png": "png", "image/svg+xml": "svg"}


class Execute(GuestView):
    """Code execution in the form of the original Backend.AI."""

    runs_code = True

    @extend_schema(request=ExecuteRequest, responses={200: dict})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Run, continue, answer, complete or interrupt code; a run that has not ended after 2 s is ``continued``."""
        wish = values_of(ExecuteRequest, request.data)
        run_id, mode, code = str(wish.get("runId") or uuid4().hex), wish["mode"], wish["code"]
        if mode == "complete":
            found = await self.ask("complete", code=code, cursor=_cursor(wish["options"], code))
            return Response({"result": _completed(run_id, found.get("matches") or [])})
        if mode == "interrupt":
            await self.ask("interrupt", run_id=run_id)
            return Response({"result": shape_of(await self.ask("take", run_id=run_id))})
        prompt = ""
        if mode == "input":
            prompt = (await self.ask("read", run_id=run_id, after=_BEHIND_ALL)).get("prompt") or ""
            await self.ask("input", run_id=run_id, text=code)
        if mode in ("query", "batch"):
            options = {name: wish["options"].get(name) for name in _STEPS}
            wanted = {"mode": mode, "code": code, "options": options, "takes": True}
            told = await self.ask("run", run_id=run_id, wait=_PATIENCE, **wanted)
        elif (after := _offset(wish["options"])) is not None:
            told = await self.ask("read", run_id=run_id, after=after, wait=_PATIENCE)
        else:
            told = await self.ask("take", run_id=run_id, wait=_PATIENCE)
        return Response({"result": shape_of(told, prompt)})


_STEPS = ("clean", "build", "exec")


def shape_of(told: dict[str, Any], prompt: str = "") -> dict[str, Any]:
    """Return a run in the form of the original. ``prompt``: what its output repeats of a question just answered."""
    has_all = int(told.get("offset") or 0) >= int(told.get("end") or 0)
    state = "continued"
    if step := told.get("ended_step"):
        state = f"{step.get('name')}-finished"
    elif told.get("state") in ENDED and has_all:
        state = "finished"
    elif told.get("state") == "WAITING_INPUT" and has_all:
        state = "waiting-input"
    options = {"offset": told.get("offset", 0)}
    if state == "waiting-input":
        options |= {"is_password": bool(told.get("password")), "prompt": told.get("prompt") or ""}
    console = [pair for item in told.get("items") or () if (pair := _console(item))]
    if console and console[0][0] == "stdout":
        console[0][1] = console[0][1].removeprefix(prompt)
    if state == "waiting-input" and told.get("prompt"):
        console.append(["stdout", told["prompt"]])
    exit_code = told.get("exit_code") if state == "finished" else step.get("exit_code") if step else None
    return {
        "runId": told.get("run_id"), "status": state, "exitCode": exit_code, "console": console, "options": options,
        "files": [],
    }  # fmt: skip


def _console(item: dict[str, Any]) -> list[Any] | None:
    kind = item.get("type")
    if kind in ("stdout", "stderr"):
        return [kind, item.get("text", "")]
    if kind == "html":
        return ["html", item.get("html", "")]
    if kind == "media":
        mime, data = item.get("mime", ""), item.get("data", "")
        return [_IMAGES[mime], data] if mime in _IMAGES else ["media", [mime, data]]
    if kind == "error":
        return ["stderr", item.get("traceback", "")]
    text = {"log": str(item.get("text", "")), "gap": "Some output was not kept."}.get(str(kind))
    return ["stderr", text + "\n"] if text else None


def _completed(run_id: str, matches: list[str]) -> dict[str, Any]:
    suggestions = {"suggestions": matches}
    return {
        "runId": run_id, "status": "finished", "exitCode": 0, "console": [["completion", suggestions]],
        "completions": suggestions, "options": {}, "files": [],
    }  # fmt: skip


def _cursor(options: dict[str, Any], code: str) -> int:
    value = options.get("cursor", options.get("col"))
    return value if isinstance(value, int) and 0 <= value <= len(code) else len(code)


def _offset(options: dict[str, Any]) -> int | None:
    """Return the output offset that the client sends; None: the session keeps the offset."""
    value = options.get("offset")
    return value if isinstance(value, int) and value >= 0 else None


class RawParser(BaseParser):
    """Leaves the body unread, as the view reads it in pieces."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the stream."""
        return stream


class FilesView(GuestView):
    """A view that reads its body as it arrives."""

    is_streamed = True
    largest_body = LARGEST_FILE + 2**20  # the form around it
    parser_classes = [RawParser]


class SessionFiles(FilesView):
    """The entries of the session's home folder."""

    @extend_schema(responses=dict)
    async def get(self, request: Request, session_id: UUID) -> Response:
        """Return the entries of the home folder."""
        async with file_of(self.target, "") as (about, _content):
            return Response(about)

    @extend_schema(request={"multipart/form-data": OpenApiTypes.OBJECT}, responses={201: dict})
    async def post(self, request: Request, session_id: UUID) -> Response:
        """Write the files of a form below the home folder, each completely or not at all."""
        written: list[dict[str, Any]] = []
        body = self.while_open(pieces_of(request))
        async with contextlib.aclosing(files_in(request.headers.get("Content-Type", ""), body)) as files:
            async for name, content in files:
                if len(written) >= _MOST_FILES:
                    raise BodyTooLarge(f"A form may have {_MOST_FILES} files at most.")
                told = await put_file(self.target, name, content)
                written.append({"path": name, "size": told["size"]})
        if not written:
            raise UserError("The form has no file: send files with names.", code="bad-form")
        return Response({"files": written}, status.HTTP_201_CREATED)


class SessionFile(FilesView):
    """A file in the session's home folder; the body of PUT and the response of GET are its bytes."""

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    async def get(self, request: Request, session_id: UUID, path: str) -> Response | StreamingHttpResponse:
        """Return the file, or the entries of a folder."""
        opening = AsyncExitStack()
        try:
            about, content = await opening.enter_async_context(file_of(self.target, path))
            if about.get("type") != "file":
                await opening.aclose()
                return Response(about)
        except BaseException:
            await opening.aclose()
            raise
        answer = StreamingHttpResponse(self.sent(opening, content), content_type="application/octet-stream")
        answer["Content-Length"] = str(int(about["size"]))
        answer["Cache-Control"] = "no-store"
        if etag := str(about.get("etag") or ""):
            answer["ETag"] = quote_etag(etag)
        answer["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(str(about['name']))}"
        return answer

    @extend_schema(
        request={"application/octet-stream": OpenApiTypes.BINARY}, parameters=[_RESENT], responses={201: dict}
    )
    async def put(self, request: Request, session_id: UUID, path: str) -> Response:
        """Write the file completely or not at all; missing folders on its path are created.

        412 ``changed`` if its ETag is not ``If-Match``, 409 ``exists`` if it exists and ``If-None-Match`` is ``*``;
        with ``resent`` only if its bytes differ.
        """
        if int(request.META.get("CONTENT_LENGTH") or 0) > LARGEST_FILE:
            raise BodyTooLarge("A file may have 1 GiB at most.")
        told = await put_file(
            self.target,
            path,
            self.while_open(pieces_of(request)),
            if_match=_etag_in(request.headers.get("If-Match", "")),
            if_none_match=request.headers.get("If-None-Match", "").strip() == "*",
            resent=request.query_params.get("resent") == "1",
        )
        return Response(told, status.HTTP_201_CREATED, headers={"ETag": quote_etag(told["etag"])})

    @extend_schema(responses={204: None})
    async def delete(self, request: Request, session_id: UUID, path: str) -> Response:
        """Delete the file, or the folder with its contents."""
        await self.ask("delete", path=path)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _etag_in(header: str) -> str:
    return header.strip().removeprefix("W/").strip('"') if header.strip() != "*" else ""


async def pieces_of(asked: Request) -> AsyncIterator[bytes]:
    """Yield the body in pieces as it arrives. Outside of the web server, it is already complete."""
    request: Any = asked._request
    if isinstance(request._stream, StreamedBody):
        async for piece in request._stream.pieces():
            yield piece
        return
    while piece := request.read(FILE_CHUNK):
        yield piece
