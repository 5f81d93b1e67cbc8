"""Reads the answers of guest agents, which nobody may trust: the owner of a session is the master of its guest.

A wrong answer is a fault of the guest, which its user is told; it never reaches a view.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backendai.base.core.errors import BadAnswer, Changed, Conflict, NotFound, StorageFull, UserError
from backendai.base.core.messages import Message
from backendai.base.wire.fields import TextReport, text_of
from backendai.gates.gateways.asking import NodeUnreachable

# Of 24 MiB, all but a picture can be values: twelve million take a minute of the event loop, and gigabytes.
MOST_VALUES = 250_000
DEEPEST_ANSWER = 64  # far below the recursion limit of the encoder, which writes it again
_NOT_THERE = frozenset({"no-such-run", "no-such-context", "no-such-file"})
_IN_THE_WAY = frozenset(
    {
        "queue-full", "too-many-contexts", "context-exists", "run-in-progress", "no-question", "not-now", "no-files",
        "is-a-folder", "kernel-gone", "execution-impossible", "guest-does-not-start",
        "exists", "mounted", "read-only", "inside-itself",
    }
)  # fmt: skip
_KINDS: Mapping[str, type[UserError]] = {"changed": Changed, "disk-full": StorageFull}
_UNKNOWN_ROUTE = (404, 405, 501)  # of an agent of an older version
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
_YEAR_10000 = 253402300800

_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Seconds = Annotated[float, Field(ge=0, lt=_YEAR_10000)]
_Texts = Annotated[list[str], Field(fail_fast=True)]  # an error for each of a list of wrong values would take long
_Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
_Tag = Annotated[str, Field(pattern=r"^[\x21-\x7e]{0,200}$")]  # it is a header; in this engine, $ is the end alone


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Item(_Part):
    type: str
    mime: str | None = None
    text: str | None = None
    html: str | None = None
    traceback: str | None = None


class _Entry(_Part):
    name: str
    kind: str | None = None
    size: _Count | None = None


class _Step(_Part):
    name: str
    exit_code: int | None = None


class _Answer(_Part):
    """What the portal reads of an answer; all the rest is passed on to the session's user as it is."""

    run_id: str | None = None
    state: str | None = None
    exit_code: int | None = None
    prompt: str | None = None
    items: Annotated[list[_Item], Field(fail_fast=True)] | None = None
    offset: _Count | None = None
    end: _Count | None = None
    ended_step: _Step | None = None
    contexts: _Objects | None = None
    languages: _Objects | None = None
    matches: _Texts | None = None
    entries: Annotated[list[_Entry], Field(fail_fast=True)] | None = None
    total: _Count | None = None
    next: str | None = None
    as_of: _Seconds | None = None
    name: str | None = None
    kind: str | None = None
    size: _Count | None = None
    etag: _Tag | None = None


_NEEDED: Mapping[str, tuple[str, ...]] = {
    "runs": ("contexts",), "languages": ("languages",), "list": ("entries",), "find": ("entries",), "stat": ("kind",),
    "put": ("size",), "get": ("type",), "run": ("run_id", "state"), "read": ("run_id", "state"),
    "take": ("run_id", "state"),
}  # fmt: skip
_OF_A_FILE = ("name", "size")


def answer_in(line: bytes | bytearray, op: str) -> dict[str, Any]:
    """Return the answer to an operation. Raises the guest's refusal as UserError, and BadAnswer if it is wrong.

    The error keeps nothing of the answer, which may have 24 MiB.
    """
    try:
        _check_number(line)
        said: Any = json.loads(line, parse_constant=_refuse, parse_float=_finite)
        if not isinstance(said, dict):
            raise ValueError("it is not an object")
        _check_depth(said)
        if _HALF_CHARACTER.search(line):  # a half cannot be written as UTF-8, and interpreters print them
            said = json.loads(json.dumps(said, ensure_ascii=False).encode(errors="replace"))
        error = said.get("error")
        if error is None:
            return _checked(said, op)
        code, message = str(error["code"])[:64], TextReport.model_validate(error).full_message
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        refusal: Exception = _bad_answer(_reason(fault))
    else:
        refusal = _user_error(code, message)
    said = None
    raise refusal  # outside of the block: JSONDecodeError has the whole text


def _bad_answer(reason: str) -> BadAnswer:
    return BadAnswer(
        "The guest agent of the session gave a wrong answer: {reason}. Its programs may have changed it.", reason=reason
    )


def refusal_in(status: int, body: bytes) -> Exception:
    """Return the error for a gateway's answer that is no 200."""
    try:
        said = json.loads(body)
        code, message = str(said["code"]), text_of(said["detail"], said.get("told"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if status == 400:
            return Conflict(
                "The agent of this session is of an older version, which cannot do this: an administrator has to "
                "update it.",
                code="agent-too-old",
            )
        if status in _UNKNOWN_ROUTE:
            text = Message("The agent of this session cannot run code: an administrator has to update the agent.")
            return Conflict(text, code="execution-impossible")
        return NodeUnreachable("the gateway answered {status}: {answer}", status=status, answer=repr(body[:200]))
    if code in _IN_THE_WAY:
        return Conflict(message, code=code)
    return NodeUnreachable("the gateway answered {status}: {answer}", status=status, answer=message)


def _checked(said: dict[str, Any], op: str) -> dict[str, Any]:
    _Answer.model_validate(said)
    for name in _OF_A_FILE if op == "get" and said.get("type") == "file" else _NEEDED.get(op, ()):
        if said.get(name) is None:
            raise ValueError(f"{name} is missing")
    return said


def _check_number(line: bytes | bytearray) -> None:
    """Raise ValueError for more than ``MOST_VALUES`` values, before any of them is made."""
    if _separators(line) <= MOST_VALUES:
        return
    plain = line.replace(b"\\\\", b"").replace(b'\\"', b"")  # the quotation marks that are left begin and end texts
    if plain.count(b'"') > 2 * MOST_VALUES or _separators(b"".join(plain.split(b'"')[::2])) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")


def _separators(line: bytes | bytearray) -> int:
    return line.count(b",") + line.count(b"[") + line.count(b"{")


def _check_depth(said: Any) -> None:
    level = [said]
    for _ in range(DEEPEST_ANSWER):
        inner = [value for one in level for value in (one.values() if isinstance(one, dict) else one)]
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _reason(fault: Exception) -> str:
    if isinstance(fault, ValidationError):
        wrong = fault.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, wrong['loc']))[:100]}: {wrong['msg']}"
    return "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)[:200]


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not a number")


def _user_error(code: str, message: str) -> UserError:
    kind = NotFound if code in _NOT_THERE else Conflict if code in _IN_THE_WAY else _KINDS.get(code, UserError)
    return kind(message, code=code)
