"""Views for signed-in users, their request, and readers of form data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from django_htmx.middleware import HtmxDetails

from backendai.domain.accounts.models import User

V = TypeVar("V", bound=Callable[..., Any])


class PageRequest(HttpRequest):
    """A request of a signed-in user; ``htmx`` is truthy if it asks for a part of the page."""

    user: User
    htmx: HtmxDetails


def signed_in(*methods: str) -> Callable[[V], V]:
    """Return a decorator of views for signed-in users with these methods (with GET also HEAD). No cache keeps them."""
    allowed = [*methods, "HEAD"] if "GET" in methods else [*methods]
    return lambda view: require_http_methods(allowed)(never_cache(login_required(view)))


def ids_in(texts: Sequence[str]) -> list[UUID]:
    """Return the UUIDs among the texts, without duplicates."""
    found = []
    for text in dict.fromkeys(texts):
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found


def way_back(request: PageRequest) -> str:
    """Return the address in the form's field ``back`` if it belongs to the portal, else the list of sessions."""
    back = request.POST.get("back", "")[:2000]
    if back.startswith("/") and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        return back
    return reverse("web:sessions")
