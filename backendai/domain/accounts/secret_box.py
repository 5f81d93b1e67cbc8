"""Encrypts stored secrets that the portal must read again, with keys derived from ``SECRET_KEY``.

``BACKENDAI_SECRET_KEY_FALLBACKS`` holds earlier keys, which only decrypt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

_STORED = b"stored secrets"


def seal(text: str) -> str:
    """Return the text, encrypted with the current key."""
    return box_for(_STORED).encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Return the decrypted text; empty if no known key decrypts it."""
    try:
        return box_for(_STORED).decrypt(sealed.encode()).decode() if sealed else ""
    except InvalidToken:
        return ""


def box_for(purpose: bytes) -> MultiFernet:
    """Return the cipher for one purpose. It cannot decrypt texts of other purposes."""
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    keys = [hmac.digest(secret.encode(), purpose, hashlib.sha256) for secret in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
