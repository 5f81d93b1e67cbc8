"""Second factors: who needs one, who has one, codes that are valid once, and the reset by an administrator."""

from __future__ import annotations

import base64
import logging
import time
from datetime import datetime
from uuid import UUID

from allauth.mfa import app_settings
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import decrypt
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.hotp import HOTP
from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.utils.crypto import constant_time_compare

from backendai.domain.accounts.models import User
from backendai.domain.accounts.secret_box import box_for
from backendai.domain.accounts.sign_in.revocation import end_credentials
from backendai.domain.activity.services import audit

logger = logging.getLogger(__name__)

NOBODY, ADMINS, EVERYBODY = REQUIREMENTS = ("none", "admins", "all")
_PURPOSE = b"second factors"
_SEEN = "second_factor"  # in the session: anyone who has lost the factor has lost the session
_STRONG = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


def is_required_of(user: User) -> bool:
    """Return whether the settings require a second factor of this user."""
    if settings.REQUIRE_MFA == ADMINS:
        return user.role in (User.Role.SUPERADMIN, User.Role.ADMIN)
    return bool(settings.REQUIRE_MFA == EVERYBODY)


def has_one(user: User) -> bool:
    """Return whether the user has a second factor. Recovery codes alone do not count."""
    return Authenticator.objects.filter(user_id=user.pk, type__in=_STRONG).exists()


def is_missing(user: User, session: SessionBase) -> bool:
    """Return whether this login must set up a required second factor first.

    Only a login without a known factor costs a query.
    """
    if not is_required_of(user) or session.get(_SEEN):
        return False
    if not has_one(user):
        return True
    session[_SEEN] = True
    return False


def reset_factors(actor_id: UUID | None, user: User, *, now: datetime) -> int:
    """Delete all second factors of a user and end the user's logins; return how many factors.

    The password, tokens and secrets stay.
    """
    with transaction.atomic():
        found = Authenticator.objects.filter(user_id=user.pk)
        kinds = sorted(found.values_list("type", flat=True))
        found.delete()
        if kinds:
            audit(actor_id, "user.reset-factors", "user", [user.pk], email=user.email, factors=kinds)
            end_credentials(user, now=now, tokens=False)
    return len(kinds)


def spend_code(user: User, text: str) -> Authenticator | None:
    """Return the factor to which a code belongs, or None.

    Each code of an app is valid once, and only if newer than the last one; each recovery code is valid once.
    """
    code = "".join(text.split())
    with transaction.atomic():
        for factor in Authenticator.objects.select_for_update().filter(user_id=user.pk).exclude(type="webauthn"):
            try:
                if _spend(factor, code):
                    return Authenticator.objects.get(pk=factor.pk)
            except InvalidToken:
                logger.error("a second factor of %s was sealed with a key that is not known any more", user.pk)
    return None


def seal(text: str) -> str:
    """Return the secret of a factor, encrypted for the database."""
    return box_for(_PURPOSE).encrypt(text.encode()).decode()


def unseal(text: str) -> str:
    """Return the decrypted secret of a factor. Raises InvalidToken if the portal has another key now."""
    return box_for(_PURPOSE).decrypt(text.encode()).decode()


def _spend(factor: Authenticator, code: str) -> bool:
    if factor.type == Authenticator.Type.RECOVERY_CODES:
        return bool(factor.wrap().validate_code(code))
    counter = _counter_of(factor, code)
    if counter:
        factor.data["last_counter"] = counter
        factor.save(update_fields=["data"])
    return bool(counter)


def _counter_of(factor: Authenticator, code: str) -> int:
    secret = base64.b32decode(decrypt(factor.data["secret"]))
    codes = HOTP(secret, app_settings.TOTP_DIGITS, SHA1(), enforce_key_length=False)  # noqa: S303
    now, most = int(time.time()) // app_settings.TOTP_PERIOD, app_settings.TOTP_TOLERANCE
    counters = range(max(now - most, factor.data.get("last_counter", 0) + 1), now + most + 1)
    good = [counter for counter in counters if constant_time_compare(code, codes.generate(counter))]
    return max(good, default=0)
