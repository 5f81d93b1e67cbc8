"""What a page's view is called with, once somebody has signed in."""

from __future__ import annotations

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from backendai.accounts.models import User


class PageRequest(HttpRequest):
    """A request of a signed-in person; ``htmx`` is truthy when only a part of the page is asked for."""

    user: User
    htmx: HtmxDetails
