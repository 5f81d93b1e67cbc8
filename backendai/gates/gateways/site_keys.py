"""The platform's own SSH keys, derived from one secret when needed and never stored."""

from __future__ import annotations

import base64
import hashlib
from uuid import UUID

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from backendai.base.core.ssh_keys import derived_key
from backendai.base.core.ssh_keys import private_text as private_text
from backendai.base.core.ssh_keys import public_text as public_text


def host_key() -> Ed25519PrivateKey:
    """Return the site's host key for SSH clients. Raises ValueError if the setting is not an Ed25519 key."""
    if not settings.SSH_HOST_KEY:
        return _derived("ssh host key")
    key = serialization.load_ssh_private_key(settings.SSH_HOST_KEY.encode(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("BACKENDAI_SSH_HOST_KEY is no Ed25519 key")
    return key


def session_key(session_id: UUID, version: int) -> Ed25519PrivateKey:
    """Return the key of a session, the same for the same version."""
    return _derived(f"ssh session {session_id} {version}")


def fingerprint_of(public_key: str) -> str:
    """Return the fingerprint of a public key as ``ssh-keygen -l`` writes it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _derived(name: str) -> Ed25519PrivateKey:
    return derived_key(settings.TICKET_KEY, salt=settings.DEPLOYMENT, name=name)
