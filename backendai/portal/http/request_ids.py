"""Gives each request an id: in the answer's header, on error pages, in log lines and in the audit log."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from backendai.domain.activity.request_facts import RequestFacts, facts_for_logs, within_request

HEADER = "X-Request-ID"
_SESSION = re.compile(r"/sessions/([0-9a-f-]{36})(?:/|\Z)")


@sync_and_async_middleware
def identify_requests(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return a middleware that sets the id of each request.

    It ignores ids sent by clients, which could copy another request's.
    """

    def handle(request: HttpRequest) -> HttpResponseBase:
        facts = _facts_of(request)
        with within_request(facts):
            response: HttpResponseBase = get_response(request)
        response[HEADER] = facts.request_id
        return response

    async def serve(request: HttpRequest) -> HttpResponseBase:
        facts = _facts_of(request)
        with within_request(facts):
            response: HttpResponseBase = await get_response(request)
        response[HEADER] = facts.request_id
        return response

    return serve if iscoroutinefunction(get_response) else handle


def _facts_of(request: HttpRequest) -> RequestFacts:
    # REMOTE_ADDR: the web server has put the visitor there if a proxy in BACKENDAI_PROXIES sent the request.
    session = _SESSION.search(request.path)
    more = {"session_id": session[1]} if session else {}
    return RequestFacts(uuid.uuid4().hex[:12], request.META.get("REMOTE_ADDR", ""), more)


class AddRequestId(logging.Filter):
    """A logging filter that adds to records what is known of the request, and its id in brackets; empty outside of
    requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the facts to the record; returns True."""
        facts = facts_for_logs()
        vars(record).update(facts)
        record.request_part = f" [request {facts['request_id']}]" if facts else ""
        return True
