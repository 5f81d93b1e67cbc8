"""Signing in by e-mail address and password, on every form that does it (the portal's and the admin's)."""

from __future__ import annotations

import logging
import math
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.known_browsers import is_known
from backendai.domain.accounts.sign_in.logins import begin_login, end_login
from backendai.domain.accounts.sign_in.sign_ins import masked, note_failure

logger = logging.getLogger(__name__)


def _by_id(user_id: Any) -> QuerySet[Any, Any]:
    return User.objects.filter(pk=user_id)


class ThrottledBackend(ModelBackend):
    """Django's model backend with a limit on failed sign-ins."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Return the user with this address and password, or None. Raises ValidationError after too many attempts."""
        email = username or kwargs.get(User.USERNAME_FIELD) or ""
        if request is None:  # no form: a command or a test
            return self._checked(request, email, password)
        address = request.META.get("REMOTE_ADDR", "")
        everywhere = not is_known(request, email)
        if wait := begin_login(email, address, now=timezone.now(), everywhere=everywhere):
            logger.warning("sign-in of %r from %s has to wait", masked(email), address)
            seconds = math.ceil(wait.total_seconds())
            raise ValidationError(
                Message("Too many attempts. Try again in {seconds} seconds.", seconds=seconds), code="too-many-attempts"
            )
        user = self._checked(request, email, password)
        if user is None:
            note_failure(request, email)
            logger.info("sign-in of %r from %s failed", masked(email), address)
        else:
            end_login(email, address, everywhere=everywhere)
        return user

    def get_user(self, user_id: Any) -> User | None:
        """Return the user of a login; None if the user is deactivated. Every request calls this."""
        if not isinstance(user_id, UUID):
            return cast(User | None, super().get_user(user_id))
        user = next(iter(_by_id(user_id)), None)
        return user if user is not None and self.user_can_authenticate(user) else None

    def _checked(self, request: HttpRequest | None, email: str, password: str | None) -> User | None:
        user = super().authenticate(request, username=email, password=password)
        return user if isinstance(user, User) else None
