"""By which request something is done, and from where; audit entries and log lines carry both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LONGEST_ADDRESS = 45  # an IPv6 address that holds an IPv4 one


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """Its id, unique among all processes, and the address of its client; both empty outside of requests."""

    request_id: str = ""
    address: str = ""


@contextmanager
def within_request(facts: RequestFacts) -> Iterator[None]:
    """Let everything inside be done by this request."""
    before = _facts.set(facts)
    try:
        yield
    finally:
        _facts.reset(before)


def request_id() -> str:
    """Return the id of the request that is answered now."""
    return _facts.get().request_id


def client_address() -> str:
    """Return the address of the client that is answered now."""
    return _facts.get().address[:LONGEST_ADDRESS]


_facts: ContextVar[RequestFacts] = ContextVar("request facts", default=RequestFacts())  # noqa: B039
