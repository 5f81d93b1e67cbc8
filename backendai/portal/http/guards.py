"""Refuses requests to host names of apps, and requests with NUL characters."""

from __future__ import annotations

import re
from itertools import chain

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from backendai.domain.cluster.app_domains import holds, is_domain
from backendai.domain.cluster.models import ResourceGroup

_MISDIRECTED = 421
_OF_SESSION = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}\Z")


class RefuseAppHosts(MiddlewareMixin):
    """A middleware that answers 421 for host names of apps.

    Signing in there would send the portal's cookie to users' programs.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Return the refusal, or None."""
        name = request.META.get("HTTP_HOST", "").lower().partition(":")[0].rstrip(".")
        if holds(settings.APPS_DOMAIN, name) or _is_of_a_group(name):
            text = "This name belongs to an app of a session. The portal has another."
            return HttpResponse(text, status=_MISDIRECTED, content_type="text/plain")
        return None


def _is_of_a_group(name: str) -> bool:
    """Return whether the name belongs to an app under a resource group's domain.

    Queries the database only for names of that form.
    """
    label, _, domain = name.partition(".")
    looks_so = _OF_SESSION.match(label) and is_domain(domain)
    return bool(looks_so) and ResourceGroup.objects.filter(app_domain=domain).exists()


class RefuseNullBytes(MiddlewareMixin):
    """A middleware that answers 400 if the query or a cookie contains a NUL.

    No text of the platform has any, and PostgreSQL rejects them only late.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Return the refusal, or None."""
        # REST names the parameter that is wrong by itself.
        query = [] if request.path.startswith("/api/") else [*request.GET, *chain(*dict(request.GET.lists()).values())]
        if any("\0" in text for text in chain(request.COOKIES.values(), query)):
            return HttpResponse("The request has a NUL character in it.", status=400, content_type="text/plain")
        return None
