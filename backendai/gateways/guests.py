"""Questions to the guest agent of a kernel, over the gateway of its node: runs of code, contexts, files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import aiohttp
from django.utils import timezone

from backendai.accounts.models import User
from backendai.activity.services import audit
from backendai.compute.models import Kernel
from backendai.compute.services.traffic import meter
from backendai.core.errors import Conflict, NotFound, UserError
from backendai.gateways.asking import NodeUnreachable
from backendai.gateways.dialing import DIAL_SECONDS, new_client
from backendai.gateways.reach import reach
from backendai.gateways.targets import Denied
from backendai.gateways.tickets import ticket_for
from backendai.wire.runs import LARGEST_ANSWER

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 60.0  # the first question starts the guest, and an interpreter may start for 50 s
_NOT_THERE = frozenset({"no-such-run", "no-such-context", "no-such-file"})
_IN_THE_WAY = frozenset(
    {
        "queue-full", "too-many-contexts", "context-exists", "run-in-progress", "no-question", "not-now", "no-files",
        "is-a-folder", "kernel-gone", "started-before-update", "execution-impossible", "guest-does-not-start",
        "no-guest",
    }
)  # fmt: skip
_UNKNOWN_ROUTE = (404, 405, 501)  # of an agent of an older version
_PIECE = 64 * 1024
_AUDITED_EVERY = 3600.0
_audited: dict[tuple[Any, ...], float] = {}
_MOST_AUDITED = 10_000


@dataclass(frozen=True, slots=True)
class GuestTarget:
    """The kernel whose guest is asked, and the base address of its node's gateway."""

    session_id: UUID
    kernel_id: UUID
    generation: int
    base: str

    def headers(self) -> Mapping[str, str]:
        """Return the header that opens the gateway for half a minute."""
        return ticket_for(self.kernel_id, self.generation, "execute", timezone.now())


def find_target(user: User, session_id: UUID) -> GuestTarget:
    """Return the main kernel of an interactive session that runs and that this person may use. Raises NotFound,
    Conflict."""
    try:
        kernel = reach(user, "execute", session_id=session_id)
    except Denied as error:
        if error.code == "not-running":
            raise Conflict("Code runs while the session runs: this one does not.", code="session-not-running") from None
        if error.code == "not-for-this-type":
            raise _not_for_code() from None
        raise NotFound("There is no such session.") from None
    return target_of(kernel)


def target_of(kernel: Kernel) -> GuestTarget:
    """Return how the guest of a running kernel is reached. Raises Conflict for a session of another type."""
    session = kernel.session
    if not session.kind.executes_code:
        raise _not_for_code()
    base = kernel.agent.gateway_url.rstrip("/") if kernel.agent else ""
    return GuestTarget(session.pk, kernel.pk, kernel.generation, f"{base}/kernels/{kernel.pk}")


def _not_for_code() -> Conflict:
    return Conflict("Only interactive sessions run code on request.", code="not-interactive")


def note_use(user: User, target: GuestTarget, by: str) -> None:
    """Write an audit entry for the first run of a login in a session and hour: that code ran, never which."""
    key, now = (user.pk, by, target.session_id), time.monotonic()
    if now - _audited.get(key, -_AUDITED_EVERY) < _AUDITED_EVERY:
        return
    if len(_audited) >= _MOST_AUDITED:
        _audited.clear()
    _audited[key] = now
    audit(user.pk, "session.execute", "session", [target.session_id])


async def ask(target: GuestTarget, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the guest's answer. Raises UserError as the guest refuses, NodeUnreachable."""
    meter.touch(target.session_id)
    async with opened(target, _line(question)) as response:
        return await _one_answer(response)


async def follow(target: GuestTarget, after: Mapping[str, int]) -> AsyncIterator[dict[str, Any]]:
    """Yield what happens to runs, as it happens; ends when the node or the guest ends it. Raises as ``ask``."""
    async with opened(target, _line({"op": "follow", "after": dict(after)}), seconds=None) as response:
        rest = b""
        async for piece in response.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LARGEST_ANSWER:
                raise NodeUnreachable("an item is larger than items are")
            for line in filter(None, lines):
                yield _checked(line)


async def put_file(target: GuestTarget, path: str, chunks: AsyncIterator[bytes]) -> int:
    """Write a file in the session whole or not at all; returns its size. Raises as ``ask``."""

    async def body() -> AsyncIterator[bytes]:
        yield _line({"op": "put", "path": path})
        async for chunk in chunks:
            for start in range(0, len(chunk), _PIECE):
                piece = chunk[start : start + _PIECE]
                yield len(piece).to_bytes(4, "big") + piece
        yield bytes(4)

    meter.touch(target.session_id)
    async with opened(target, body(), seconds=None) as response:
        return int((await _one_answer(response))["size"])


@contextlib.asynccontextmanager
async def file_of(target: GuestTarget, path: str) -> AsyncIterator[tuple[dict[str, Any], AsyncIterator[bytes]]]:
    """Give what is at a path, and its content. A file that ends early breaks off. Raises as ``ask``."""
    meter.touch(target.session_id)
    async with opened(target, _line({"op": "get", "path": path}), seconds=None) as response:
        head, rest = b"", b""
        while b"\n" not in head and len(head) <= LARGEST_ANSWER and (piece := await response.content.readany()):
            head += piece
        head, _, rest = head.partition(b"\n")
        yield _checked(head), _content(response, rest)


async def _content(response: aiohttp.ClientResponse, first: bytes) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in response.content.iter_any():
        yield piece


@contextlib.asynccontextmanager
async def opened(
    target: GuestTarget, body: bytes | AsyncIterator[bytes], *, seconds: float | None = _ANSWER_SECONDS
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Give the gateway's answer to a question. Raises UserError as the gateway refuses, NodeUnreachable."""
    timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=DIAL_SECONDS)
    try:
        async with (
            new_client() as client,
            client.post(f"{target.base}/execute", data=body, headers=target.headers(), timeout=timeout) as response,
        ):
            if response.status != 200:
                raise _refusal(response.status, await response.content.read(_PIECE))
            yield response
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
        raise NodeUnreachable(f"no answer from {target.base}: {error}") from error


async def _one_answer(response: aiohttp.ClientResponse) -> dict[str, Any]:
    answer = bytearray()
    async for piece in response.content.iter_any():
        answer += piece
        if len(answer) > LARGEST_ANSWER:
            raise NodeUnreachable("the answer is larger than answers are")
    return _checked(bytes(answer))


def _line(question: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(question)).encode() + b"\n"


def _checked(line: bytes) -> dict[str, Any]:
    """Return what a line says. A guest belongs to people: what it says is shown to its own user, and believed by no
    one else."""
    try:
        said = json.loads(line)
        if not isinstance(said, dict):
            raise ValueError
        error = said.get("error")
        if error is None:
            return said
        code, message = str(error["code"])[:64], str(error["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Conflict(
            "The guest agent of the session does not answer sensibly: try again.", code="no-guest"
        ) from error
    raise _user_error(code, message)


def _refusal(status: int, body: bytes) -> Exception:
    try:
        said = json.loads(body)
        code, message = str(said["code"]), str(said["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        if status in _UNKNOWN_ROUTE:
            text = "The agent of this session cannot run code: an administrator has to update the agent."
            return Conflict(text, code="execution-impossible")
        return NodeUnreachable(f"the gateway answered {status}: {body[:200]!r}")
    if code in _IN_THE_WAY:
        return Conflict(message, code=code)
    return NodeUnreachable(f"the gateway answered {status}: {message}")


def _user_error(code: str, message: str) -> UserError:
    kind = NotFound if code in _NOT_THERE else Conflict if code in _IN_THE_WAY else UserError
    return kind(message, code=code)
