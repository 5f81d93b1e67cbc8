"""Secrets that the portal itself must read again, sealed with keys made from ``SECRET_KEY``.

With ``BACKENDAI_SECRET_KEY_FALLBACKS`` what an earlier key has sealed still opens; the present one seals.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

_PURPOSE = b"secrets of key pairs"


def seal(text: str) -> str:
    """Return the text encrypted with the present key."""
    return _box().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Return the text; empty when it was sealed with a key that is not known any more, or never."""
    try:
        return _box().decrypt(sealed.encode()).decode() if sealed else ""
    except InvalidToken:
        return ""


def _box() -> MultiFernet:
    return MultiFernet([Fernet(_key(one)) for one in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def _key(secret: str) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256))
