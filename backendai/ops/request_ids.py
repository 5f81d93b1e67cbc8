"""Each request has an id: in the answer's head, on error pages, in log lines and in the audit trail."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from backendai.activity.request_facts import RequestFacts, request_id, within_request

HEADER = "X-Request-ID"


def identify_requests(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Return the middleware. Ids that clients send are ignored: they could take another request's."""

    def handle(request: HttpRequest) -> HttpResponse:
        # REMOTE_ADDR: the web server has put the visitor there if a proxy in BACKENDAI_PROXIES sent the request.
        facts = RequestFacts(uuid.uuid4().hex[:12], request.META.get("REMOTE_ADDR", ""))
        with within_request(facts):
            response = get_response(request)
        response[HEADER] = facts.request_id
        return response

    return handle


class AddRequestId(logging.Filter):
    """Gives log records ``request``: the id in brackets, or nothing outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record."""
        number = request_id()
        record.request_part = f" [request {number}]" if number else ""
        return True
