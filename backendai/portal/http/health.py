"""Health of a process and readiness of the portal, for load balancers."""

from __future__ import annotations

from datetime import timedelta

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from backendai.base.core.version import VERSION
from backendai.domain.cluster.services import last_pass_at
from backendai.portal.loops.loops import PASS_LEASE

_STALE = timedelta(seconds=15)


def alive(request: HttpRequest) -> HttpResponse:
    """Return 200, as the process can answer."""
    return HttpResponse("ok", content_type="text/plain")


def ready(request: HttpRequest) -> HttpResponse:
    """Return 200 if the database answers and a scheduler pass has ended recently.

    Otherwise return 503 with the missing part.
    """
    try:
        last = last_pass_at(PASS_LEASE)
    except DatabaseError:
        return JsonResponse({"database": "does not answer"}, status=503)
    if last is None or timezone.now() - last > _STALE:
        return JsonResponse({"database": "ok", "scheduler": "no pass lately"}, status=503)
    return JsonResponse({"database": "ok", "scheduler": "ok", "version": VERSION})
