"""Answers 503 while the database is unreachable or busy, and 507 when a disk is full. Clients may retry."""

from __future__ import annotations

import logging
import sys
import threading
import time
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseServerError, JsonResponse
from django.template import loader
from django.utils.deprecation import MiddlewareMixin

from backendai.base.db.database_faults import is_away, is_busy, is_full
from backendai.base.texts.translation import gettext as _
from backendai.domain.activity.request_facts import request_id
from backendai.portal.api.frame.errors import problem

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 5
_SAY_EVERY = 60.0
_CODE = "database-unavailable"
_BUSY_RETRY_SECONDS = 2
_BUSY_CODE = "database-busy"
_FULL_RETRY_SECONDS = 60
_FULL_CODE = "storage-full"


class AnswerWhileAway(MiddlewareMixin):
    """A middleware for database errors of views."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the answer for a database error or a full disk, None for other errors."""
        return _answer(request, error)


def answer_failure(request: HttpRequest) -> HttpResponse:
    """Return the answer for an error of a middleware. Django calls it instead of its page 500."""
    error = sys.exc_info()[1]
    return (_answer(request, error) if error is not None else None) or _server_error()


def _server_error() -> HttpResponse:
    """Return the page 500, with the id of the request."""
    return HttpResponseServerError(loader.get_template("500.html").render({"request_id": request_id()}))


def _answer(request: HttpRequest, error: BaseException) -> HttpResponse | None:
    if is_away(error):
        return answer_while_away(request, error)
    if is_busy(error):
        return answer_while_busy(request, error)
    return answer_while_full(request, error) if is_full(error) else None


def answer_while_away(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Return 503 as a page, or as JSON for programs and agents. Logs once a minute."""
    _burst.say(error)
    detail = _("The database does not answer. Try again in a few seconds.")
    return _written(request, HTTPStatus.SERVICE_UNAVAILABLE, _CODE, detail, _RETRY_SECONDS)


def answer_while_busy(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Return 503 for a lock or statement that took too long. Logs once a minute."""
    _busy_burst.say(error)
    detail = _("The database was busy for too long, so nothing was changed. Try again in a few seconds.")
    return _written(request, HTTPStatus.SERVICE_UNAVAILABLE, _BUSY_CODE, detail, _BUSY_RETRY_SECONDS)


def answer_while_full(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Return 507 as a page, or as JSON for programs and agents. Logs once a minute."""
    _full_burst.say(error)
    detail = _("A disk of the portal is full: nothing was changed. Its administrators must free space.")
    return _written(request, HTTPStatus.INSUFFICIENT_STORAGE, _FULL_CODE, detail, _FULL_RETRY_SECONDS)


def _written(request: HttpRequest, status: HTTPStatus, code: str, detail: str, seconds: int) -> HttpResponse:
    if request.path.startswith("/api/"):
        answer: HttpResponse = problem(status, code, detail)
    elif request.path.startswith("/node/"):
        answer = JsonResponse({"code": code, "detail": detail}, status=status)
    else:
        answer = HttpResponse(loader.get_template(f"{status:d}.html").render(), status=status)
    answer["Retry-After"] = str(seconds)
    answer["Cache-Control"] = "no-store"
    answer._has_been_logged = True  # type: ignore[attr-defined]  # else Django logs a traceback for each request
    return answer


class _Burst:
    """Logs at most once a minute that requests are refused, and how many."""

    def __init__(self, sentence: str = "the database does not answer; answered 503") -> None:
        self._sentence = sentence
        self._lock = threading.Lock()
        self._said_at, self._unsaid = -_SAY_EVERY, 0

    def say(self, error: BaseException) -> None:
        with self._lock:
            self._unsaid += 1
            if time.monotonic() - self._said_at < _SAY_EVERY:
                return
            count, self._unsaid, self._said_at = self._unsaid, 0, time.monotonic()
        said = str(error).partition("\n")[0]
        logger.error("%s since the last such line: %d (%s)", self._sentence, count, said)


_burst = _Burst()
_busy_burst = _Burst("the database gave up on statements; answered 503")
_full_burst = _Burst("a disk is full; answered 507")
