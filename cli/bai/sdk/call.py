"""What is sent and how its answer is read, without a way to send it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

T = TypeVar("T")
Json = dict[str, Any]
ATTEMPTS = 5
PASSING = (502, 503, 504)  # statuses of a portal that is away
_LONGEST_WAIT = 60.0


class Problem(Exception):
    """What the portal refused. ``code`` is for programs, ``detail`` for people, ``status`` is that of HTTP."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.code = status, str(body.get("code", ""))
        said = body.get("detail") or body.get("message") or body.get("title")  # file servers have a message
        self.detail = str(said or f"The portal answered {status}.")
        self.field, self.errors = str(body.get("field") or ""), list(body.get("errors") or ())
        self.data: Json = dict(body.get("data") or {})
        self.body = dict(body)
        super().__init__(self.detail)


class Unreachable(Exception):
    """The portal did not answer, or broke off."""


@dataclass(frozen=True)
class Answer:
    """An answer, whoever received it."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    json: Callable[[], Any]


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list. ``next`` is the address of the following part."""

    results: list[T]
    next: str = ""


def as_json(answer: Answer) -> Any:
    """Return the body."""
    return answer.json() if answer.content else {}


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request. ``path`` is a template below /api/v1, or an address of a file server (``is_outside``).

    With ``keyed`` a POST carries an Idempotency-Key, so that it can be sent again; ``reads``: a POST without effect.
    """

    method: str
    path: str
    read: Callable[[Answer], T] = field(default=as_json)
    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    content: Callable[[], Iterable[bytes]] | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    keyed: bool = True
    reads: bool = False
    is_outside: bool = False
    is_signed_in: bool = True

    @property
    def address(self) -> str:
        """The address, relative to the portal unless outside."""
        path = self.path
        for name, value in self.names.items():
            path = path.replace(f"{{{name}}}", quote(value, safe="/" if name == "path" else ""))
        pairs = [(key, one) for key, value in self.query.items() for one in _values(value)]
        return (path if self.is_outside else f"/api/v1{path}") + (f"?{urlencode(pairs)}" if pairs else "")

    def prepared(self) -> Call[T]:
        """Return the call with the key under which all its attempts are one."""
        if self.method != "POST" or not self.keyed or self.content is not None or self.reads:
            return self
        return replace(self, headers={"Idempotency-Key": uuid4().hex, **self.headers})

    def following(self, page: Page[Any]) -> Call[T]:
        """Return the call for the next page, at the portal that answered."""
        query = urlsplit(page.next).query
        return replace(self, path=f"{self.path}?{query}", query={})

    def wait_before_next(self, attempt: int, answer: Answer | None, *, was_sent: bool = True) -> float | None:
        """Return the seconds until the request is sent again; None: the answer counts."""
        may_repeat = self.method not in ("POST", "PATCH") or self.reads or "Idempotency-Key" in self.headers
        if attempt >= ATTEMPTS:
            return None
        backoff = float(min(2**attempt, 16)) / 4 * random.uniform(0.75, 1.25)
        if answer is None:
            return backoff if may_repeat or not was_sent else None
        if answer.status != 429 and not (answer.status in PASSING and may_repeat):
            return None
        told = answer.headers.get("retry-after", "")
        return min(float(told), _LONGEST_WAIT) if told.isdecimal() else backoff

    def result(self, answer: Answer) -> T:
        """Return what was answered. Raises Problem."""
        if answer.status >= 300:
            raise _problem_of(answer)
        try:
            return self.read(answer)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            detail = "The answer is not that of a portal: check the address."
            raise Problem(answer.status, {"code": "not-a-portal", "detail": detail}) from error


def _problem_of(answer: Answer) -> Problem:
    if place := answer.headers.get("location"):
        return Problem(answer.status, {"code": "moved", "detail": f"This address leads to {place}: use that one."})
    try:
        body = answer.json()
    except ValueError:
        body = {}
    return Problem(answer.status, body if isinstance(body, dict) else {})


def _values(value: Any) -> list[Any]:
    if value is None:
        return []
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(one).lower() if isinstance(one, bool) else one for one in values]
