"""Signs requests with a key pair, and verifies signatures.

The string to sign and the derived key are those of the official client. ``Signed`` holds the differences: this API ends
the string with the digest of the real body, the official client with that of an empty body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from django.db import IntegrityError, transaction

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import KeyPair, SeenSignature
from backendai.domain.accounts.secret_box import unseal

SCHEME = "BackendAI"
WINDOW = timedelta(minutes=5)
_CREDENTIAL = re.compile(r"signMethod=HMAC-SHA256,\s*credential=([A-Za-z0-9]{1,32}):([0-9a-f]{64})\Z")
_NOBODY = "there is no such key pair, but the work is the same"
_TOUCH_AFTER = timedelta(minutes=1)
_LONGEST_DATE = 64


class SignatureRefused(UserError):
    """The signature of the request is missing, invalid, too old or already used."""

    code = "invalid-signature"


@dataclass(frozen=True, slots=True)
class Signed:
    """The signed parts of a request.

    ``path`` is percent-encoded, with prefix and query; ``date`` is the header as sent; ``content_type`` may be empty.
    """

    method: str
    path: str
    host: str
    date: str
    content_type: str = ""
    version: str = ""
    body: bytes = b""


def canonical(request: Signed) -> str:
    """Return the string to sign, of seven lines."""
    kind = request.content_type.partition(";")[0].strip().lower() or "application/octet-stream"
    return "\n".join(
        (
            request.method.upper(),
            request.path,
            request.date,
            f"host:{request.host}",
            f"content-type:{kind}",
            f"x-backendai-version:{request.version}",
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def sign(secret: str, request: Signed) -> str:
    """Return the signature in hex. Raises SignatureRefused for an unreadable date."""
    day = moment_of(request.date).strftime("%Y%m%d")
    key = hmac.digest(hmac.digest(secret.encode(), day.encode(), hashlib.sha256), request.host.encode(), hashlib.sha256)
    return hmac.new(key, canonical(request).encode(), hashlib.sha256).hexdigest()


def moment_of(date: str) -> datetime:
    """Return the time (UTC) of a date header in ISO 8601 or mail format.

    A time without a zone is UTC. Raises SignatureRefused for an unreadable one.
    """
    try:
        found = datetime.fromisoformat(date) if date[:1].isdigit() else parsedate_to_datetime(date)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise SignatureRefused("The header Date is missing or not a date.", code="invalid-date") from None


def signer_of(request: Signed, authorization: str, *, now: datetime, window: timedelta = WINDOW) -> KeyPair:
    """Return the active key pair (with its user) that signed the request, and mark the signature as used.

    Raises SignatureRefused if it is invalid, used before, or outside the time window.
    """
    found = _CREDENTIAL.match(authorization) if len(request.date) <= _LONGEST_DATE else None
    if found is None:
        raise SignatureRefused(
            "The header Authorization must be: BackendAI signMethod=HMAC-SHA256, credential=KEY:SIGNATURE."
        )
    access_key, signature = found.groups()
    _check_age(request.date, now, window)
    pair = KeyPair.objects.select_related("user").filter(pk=access_key, is_active=True, user__is_active=True).first()
    secret = unseal(pair.secret) if pair else ""
    is_good = hmac.compare_digest(sign(secret or _NOBODY, request), signature)
    if pair is None or not secret or not is_good:
        raise SignatureRefused("The signature does not match an active key pair and this request.")
    _take(signature, expires_at=moment_of(request.date) + window)
    _touch(pair, now)
    return pair


def _check_age(date: str, now: datetime, window: timedelta) -> None:
    apart = moment_of(date) - now
    if abs(apart) > window:
        side = "ahead of" if apart > timedelta() else "behind"
        minutes = int(window.total_seconds() // 60)
        raise SignatureRefused(
            "The header Date is {seconds} s {side} the portal's clock; {minutes} minutes are "
            "allowed. Here it is {utc}.",
            seconds=f"{abs(apart).total_seconds():.0f}",
            side=side,
            minutes=minutes,
            utc=now.astimezone(UTC).isoformat(timespec="seconds"),
            code="signature-expired",
        )


def _take(signature: str, *, expires_at: datetime) -> None:
    try:
        with transaction.atomic():
            SeenSignature.objects.create(pk=signature, expires_at=expires_at)
    except IntegrityError:
        text = "This very request was made already. Sign each one anew, with microseconds in its Date."
        raise SignatureRefused(text, code="signature-used") from None


def _touch(pair: KeyPair, now: datetime) -> None:
    if pair.last_used_at is None or now - pair.last_used_at > _TOUCH_AFTER:
        KeyPair.objects.filter(pk=pair.pk).update(last_used_at=now)
        SeenSignature.objects.filter(expires_at__lt=now).delete()
