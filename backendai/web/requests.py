"""What a page's view is called with, once somebody has signed in, and what its forms send."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails

from backendai.accounts.models import User


class PageRequest(HttpRequest):
    """A request of a signed-in person; ``htmx`` is truthy when only a part of the page is asked for."""

    user: User
    htmx: HtmxDetails


def ids_in(texts: Sequence[str]) -> list[UUID]:
    """Return the ids, each once; other texts are left out."""
    found = []
    for text in dict.fromkeys(texts):
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found


def way_back(request: PageRequest) -> str:
    """Return the page of ours that the form names as ``back``; the list of sessions without one."""
    back = request.POST.get("back", "")[:2000]
    if back.startswith("/") and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        return back
    return reverse("web:sessions")
