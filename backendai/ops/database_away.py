"""While the database is away, requests are answered 503: clients that try again then know that they may."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template import loader
from django.views.defaults import server_error

from backendai.api.errors import problem
from backendai.core.database_faults import is_away
from backendai.texts.translation import gettext as _

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 5
_SAY_EVERY = 60.0
_CODE = "database-unavailable"


class AnswerWhileAway:
    """Middleware for errors of views."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the answer while the database is away, None for any other error."""
        return answer_while_away(request, error) if is_away(error) else None


def answer_failure(request: HttpRequest) -> HttpResponse:
    """Answer an error of a middleware; Django calls it in place of the page 500."""
    error = sys.exc_info()[1]
    return answer_while_away(request, error) if error is not None and is_away(error) else server_error(request)


def answer_while_away(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Return 503 as a page, or as JSON to programs and nodes; the log has one line a minute."""
    _burst.say(error)
    detail = _("The database does not answer. Try again in a few seconds.")
    if request.path.startswith("/api/"):
        answer: HttpResponse = problem(HTTPStatus.SERVICE_UNAVAILABLE, _CODE, detail)
    elif request.path.startswith("/node/"):
        answer = JsonResponse({"code": _CODE, "detail": detail}, status=HTTPStatus.SERVICE_UNAVAILABLE)
    else:
        page = loader.get_template("503.html").render()
        answer = HttpResponse(page, status=HTTPStatus.SERVICE_UNAVAILABLE)
    answer["Retry-After"] = str(_RETRY_SECONDS)
    answer["Cache-Control"] = "no-store"
    answer._has_been_logged = True  # type: ignore[attr-defined]  # else Django logs a traceback for each request
    return answer


class _Burst:
    """Says once a minute that requests are refused, and how many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said_at, self._unsaid = -_SAY_EVERY, 0

    def say(self, error: BaseException) -> None:
        with self._lock:
            self._unsaid += 1
            if time.monotonic() - self._said_at < _SAY_EVERY:
                return
            count, self._unsaid, self._said_at = self._unsaid, 0, time.monotonic()
        said = str(error).partition("\n")[0]
        logger.error("the database does not answer; answered 503 since the last such line: %d (%s)", count, said)


_burst = _Burst()
