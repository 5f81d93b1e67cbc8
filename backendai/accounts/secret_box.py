"""Secrets that the portal itself must read again, sealed with keys made from ``SECRET_KEY``.

With ``BACKENDAI_SECRET_KEY_FALLBACKS`` what an earlier key has sealed still opens; the present one seals.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

_STORED = b"stored secrets"


def seal(text: str) -> str:
    """Return the text encrypted with the present key."""
    return box_for(_STORED).encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Return the text; empty when it was sealed with a key that is not known any more, or never."""
    try:
        return box_for(_STORED).decrypt(sealed.encode()).decode() if sealed else ""
    except InvalidToken:
        return ""


def box_for(purpose: bytes) -> MultiFernet:
    """Return what seals and opens for one purpose: what was sealed for another does not open."""
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    keys = [hmac.digest(secret.encode(), purpose, hashlib.sha256) for secret in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
