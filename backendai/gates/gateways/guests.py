"""Sends requests to the guest agent of a kernel, through its agent's gateway.

They are about runs of code, contexts and files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from django.utils import timezone

from backendai.base.core.errors import BadAnswer, Conflict, NotFound
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.runs import LARGEST_ANSWER
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.capabilities import why_not
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.launching.sharing import note_guest
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.gateways.asking import NodeUnreachable
from backendai.gates.gateways.dialing import DIAL_SECONDS, kept_client, new_client
from backendai.gates.gateways.guest_answers import answer_in, refusal_in
from backendai.gates.gateways.open_questions import LARGE, large_answer_of, question_to
from backendai.gates.gateways.reach import reach, why_no_code
from backendai.gates.gateways.targets import Denied
from backendai.gates.gateways.tickets import ticket_for
from backendai.gates.gateways.tunnel import SILENCE_SECONDS

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 60.0  # the first question starts the guest, and an interpreter may start for 50 s
_FAILURES = (aiohttp.ClientError, OSError, asyncio.IncompleteReadError)
# Asking twice does what asking once does, so that these may go over a connection that may be dead.
_REPEATABLE = frozenset({"run", "read", "runs", "code", "languages", "complete", "interrupt"})
_PIECE = 64 * 1024
_TOO_LARGE = "The guest agent of the session gave a wrong answer: it is too large. Its programs may have changed it."
AUDITED_EVERY = 3600.0
_audited: dict[tuple[Any, ...], float] = {}
_MOST_AUDITED = 10_000


@dataclass(frozen=True, slots=True)
class GuestTarget:
    """The kernel of a guest agent, and the base address and slowness of its agent's gateway."""

    session_id: UUID
    kernel_id: UUID
    generation: int
    base: str
    slowness: int = 1

    def headers(self) -> Mapping[str, str]:
        """Return the header that opens the gateway for half a minute."""
        return ticket_for(self.kernel_id, self.generation, "execute", timezone.now())


def find_target(user: User, session_id: UUID) -> GuestTarget:
    """Return the main kernel of a running interactive session that this user may use. Raises NotFound and Conflict."""
    try:
        kernel = reach(user, "execute", session_id=session_id)
    except Denied as error:
        if error.code == "not-running":
            raise Conflict("The session is not running, so it cannot run code.", code="session-not-running") from None
        if error.code == "not-for-this-type":
            raise Conflict(error.message, code="not-interactive") from None
        raise NotFound("Session not found.") from None
    note_guest(user, kernel.session, "files and code", now=timezone.now())
    return target_of(kernel)


def target_of(kernel: Kernel) -> GuestTarget:
    """Return the guest target of a running kernel. Raises Conflict for a session of another type, or an agent that
    cannot run code."""
    session = kernel.session
    if not session.kind.executes_code:
        raise Conflict(why_no_code(session.kind), code="not-interactive")
    if kernel.agent and (obstacle := why_not(kernel.agent, Capability.EXECUTION)):
        raise Conflict(obstacle, code="execution-impossible")
    base = kernel.agent.gateway_url.rstrip("/") if kernel.agent else ""
    slowness = kernel.agent.slowness if kernel.agent else 1
    return GuestTarget(session.pk, kernel.pk, kernel.generation, f"{base}/kernels/{kernel.pk}", slowness)


def note_use(user: User, target: GuestTarget, by: str) -> None:
    """Record in the audit log that a login runs code in a session: once in an hour, and not which code."""
    key, now = (user.pk, by, target.session_id), time.monotonic()
    if now - _audited.get(key, -AUDITED_EVERY) < AUDITED_EVERY:
        return
    if len(_audited) >= _MOST_AUDITED:
        _audited.clear()
    _audited[key] = now
    audit(user.pk, "session.execute", "session", [target.session_id])


async def ask(target: GuestTarget, question: Mapping[str, Any], *, seconds: float = _ANSWER_SECONDS) -> dict[str, Any]:
    """Send a request to the guest agent, and return its answer.

    Raises the guest's refusal as UserError, BadAnswer, Overloaded, or NodeUnreachable.
    """
    meter.touch(target.session_id)
    op = str(question["op"])
    if op == "run" and not question.get("run_id"):
        question = {**question, "run_id": uuid4().hex}
    if op not in _REPEATABLE:
        async with opened(target, _line(question), seconds=seconds) as response:
            return await _one_answer(response, op, target.session_id)
    client = await kept_client()
    for is_last in (False, True):
        try:
            async with _posted(client, target, _line(question), seconds) as response:
                return await _one_answer(response, op, target.session_id)
        except aiohttp.ServerDisconnectedError as error:  # a connection that the node gave up meanwhile
            if is_last:
                raise _unreachable(target, error) from error
        except _FAILURES as error:
            raise _unreachable(target, error) from error
    raise AssertionError


@contextlib.asynccontextmanager
async def followed(target: GuestTarget, after: Mapping[str, int]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield a stream of events of runs, once the guest is reached. Raises the errors of ``ask``."""
    question = _line({"op": "follow", "after": dict(after)})
    async with opened(target, question, seconds=None, silence=SILENCE_SECONDS) as response:  # a guest beats every 15 s
        yield _told(response)


async def _told(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the events, one for each line, until the agent or the guest ends the stream."""
    rest = bytearray()
    async for piece in response.content.iter_any():
        first, *others = piece.split(b"\n")
        rest += first
        for following in others:
            if rest:
                yield _read(rest, "follow")  # which empties it
            rest += following
        if len(rest) > LARGEST_ANSWER:
            raise BadAnswer(_TOO_LARGE)


async def put_file(
    target: GuestTarget,
    path: str,
    chunks: AsyncIterator[bytes],
    *,
    if_match: str = "",
    if_none_match: bool = False,
    resent: bool = False,
) -> dict[str, Any]:
    """Write a file in the session whole or not at all; return its size and etag.

    Raises the errors of ``ask``, Changed if its etag is not ``if_match``, and with ``if_none_match`` Conflict if the
    file exists; with ``resent`` only if its bytes differ.
    """
    question = {"op": "put", "path": path, "if_match": if_match, "if_none_match": if_none_match, "resent": resent}
    patience, now = asyncio.timeout(None), asyncio.get_running_loop().time

    async def body() -> AsyncIterator[bytes]:
        yield _line(question)
        async for chunk in chunks:
            for start in range(0, len(chunk), _PIECE):
                piece = chunk[start : start + _PIECE]
                patience.reschedule(now() + SILENCE_SECONDS)
                yield len(piece).to_bytes(4, "big") + piece
            patience.reschedule(None)  # the web server limits how long the sender may be silent
        patience.reschedule(now() + SILENCE_SECONDS)
        yield bytes(4)

    meter.touch(target.session_id)
    try:
        async with patience, opened(target, body(), seconds=None) as response:
            told = await _one_answer(response, "put", target.session_id)
    except TimeoutError as error:
        raise _unreachable(target, error) from error
    return {"size": told["size"], "etag": told.get("etag") or ""}


@contextlib.asynccontextmanager
async def file_of(target: GuestTarget, path: str) -> AsyncIterator[tuple[dict[str, Any], AsyncIterator[bytes]]]:
    """Yield the properties of a file or directory, and its content.

    A file that ends early breaks the connection. Raises the errors of ``ask``.
    """
    async with answer_of(target, {"op": "get", "path": path}) as (about, content):
        yield about, _of_size(content, int(about["size"])) if about["type"] == "file" else content


@contextlib.asynccontextmanager
async def answer_of(
    target: GuestTarget, question: Mapping[str, Any]
) -> AsyncIterator[tuple[dict[str, Any], AsyncIterator[bytes]]]:
    """Yield the first line of an answer, and the bytes after it. Raises the errors of ``ask``."""
    meter.touch(target.session_id)
    async with opened(target, _line(question), seconds=None, silence=SILENCE_SECONDS) as response:
        head, rest, ending = bytearray(), b"", b""
        async with asyncio.timeout(_ANSWER_SECONDS * target.slowness):
            while not ending and len(head) <= LARGEST_ANSWER and (piece := await response.content.readany()):
                line, ending, rest = piece.partition(b"\n")
                head += line
        yield _read(head, str(question["op"])), _content(response, rest)


async def _content(response: aiohttp.ClientResponse, first: bytes) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in response.content.iter_any():
        yield piece


async def _of_size(content: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    async for piece in content:
        size -= len(piece)
        if size < 0:
            break
        yield piece
    if size:  # the answer's head has told the size, so the connection has to break
        raise NodeUnreachable("the guest sent a file of another size than it told")


@contextlib.asynccontextmanager
async def opened(
    target: GuestTarget,
    body: bytes | AsyncIterator[bytes],
    *,
    seconds: float | None = _ANSWER_SECONDS,
    silence: float | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield the gateway's answer to a request. ``seconds``: for all of it; ``silence``: between two of its pieces.

    Raises the gateway's refusal as UserError, or NodeUnreachable.
    """
    try:
        async with new_client() as client, _posted(client, target, body, seconds, silence) as response:
            yield response
    except _FAILURES as error:
        raise _unreachable(target, error) from error


@contextlib.asynccontextmanager
async def _posted(
    client: aiohttp.ClientSession,
    target: GuestTarget,
    body: bytes | AsyncIterator[bytes],
    seconds: float | None,
    silence: float | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    longest = None if seconds is None else seconds * target.slowness
    timeout = aiohttp.ClientTimeout(total=longest, sock_connect=DIAL_SECONDS, sock_read=silence)
    headers = target.headers()
    url = f"{target.base}/execute"
    with question_to(target.session_id):
        async with contextlib.AsyncExitStack() as held:
            async with asyncio.timeout(_ANSWER_SECONDS * target.slowness):
                response = await held.enter_async_context(client.post(url, data=body, headers=headers, timeout=timeout))
                if response.status != 200:
                    raise refusal_in(response.status, await response.content.read(_PIECE))
            yield response


def _unreachable(target: GuestTarget, error: BaseException) -> NodeUnreachable:
    words = str(error) or type(error).__name__
    return NodeUnreachable("no answer from {address}: {error}", address=target.base, error=words)


async def _one_answer(response: aiohttp.ClientResponse, op: str, session_id: UUID) -> dict[str, Any]:
    answer = bytearray()
    with contextlib.ExitStack() as counted:
        async for piece in response.content.iter_any():
            if len(answer) <= LARGE < len(answer) + len(piece):
                counted.enter_context(large_answer_of(session_id))
            answer += piece
            if len(answer) > LARGEST_ANSWER:
                answer.clear()  # the traceback keeps it
                raise BadAnswer(_TOO_LARGE)
        if not answer:  # worth another try, which starts a guest
            raise NodeUnreachable("the guest ended before it answered")
        return _read(answer, op)


def _read(answer: bytearray, op: str) -> dict[str, Any]:
    try:
        return answer_in(answer, op)
    finally:
        answer.clear()  # the traceback of an error keeps it


def _line(question: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(question)).encode() + b"\n"
