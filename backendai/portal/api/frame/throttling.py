"""Limits the rate of requests."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from backendai.domain.accounts.models import User
from backendai.domain.accounts.rates import check_rates
from backendai.portal.api.frame.authentication import signing_pair


class PersonalRate(BaseThrottle):
    """Counts the request for its user and key pair; a POST to a view with ``launches`` also counts as a launch."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return True. Raises TooFast with the time until the next try."""
        if isinstance(request.user, User):
            launches = request.method == "POST" and getattr(view, "launches", False)
            check_rates(request.user, now=timezone.now(), key_pair=signing_pair(request), launches=launches)
        return True
