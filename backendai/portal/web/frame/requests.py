"""The request of a signed-in user, and readers of form data."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails

from backendai.domain.accounts.models import User


class PageRequest(HttpRequest):
    """A request of a signed-in user; ``htmx`` is truthy if it asks for a part of the page."""

    user: User
    htmx: HtmxDetails


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
