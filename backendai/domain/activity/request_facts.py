"""Id and client address of the current request, for audit entries and log lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

LONGEST_ADDRESS = 45  # an IPv6 address that holds an IPv4 one


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The request's id, unique among all processes, and its client's address; both are empty outside of requests.

    ``more``: what becomes known of it, for log lines: ``user_id``, ``session_id`` and ``agent``.
    """

    request_id: str = ""
    address: str = ""
    more: dict[str, str] = field(default_factory=dict)


@contextmanager
def within_request(facts: RequestFacts) -> Iterator[None]:
    """Make these facts those of the current request inside this block."""
    before = _facts.set(facts)
    try:
        yield
    finally:
        _facts.reset(before)


def request_id() -> str:
    """Return the id of the current request."""
    return _facts.get().request_id


def note_for_logs(**facts: object) -> None:
    """Add these facts to all later log lines of the current request; outside of requests nothing."""
    if _facts.get().request_id:
        _facts.get().more.update({name: str(fact) for name, fact in facts.items()})


def facts_for_logs() -> dict[str, str]:
    """Return what is known of the current request by now."""
    facts = _facts.get()
    return {**facts.more, "request_id": facts.request_id} if facts.request_id else {}


def client_address() -> str:
    """Return the client address of the current request."""
    return _facts.get().address[:LONGEST_ADDRESS]


_facts: ContextVar[RequestFacts] = ContextVar("request facts", default=RequestFacts())  # noqa: B039
