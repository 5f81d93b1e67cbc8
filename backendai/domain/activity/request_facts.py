"""Id and client address of the current request, for audit entries and log lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LONGEST_ADDRESS = 45  # an IPv6 address that holds an IPv4 one


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The request's id, unique among all processes, and its client's address; both are empty outside of requests."""

    request_id: str = ""
    address: str = ""


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


def client_address() -> str:
    """Return the client address of the current request."""
    return _facts.get().address[:LONGEST_ADDRESS]


_facts: ContextVar[RequestFacts] = ContextVar("request facts", default=RequestFacts())  # noqa: B039
