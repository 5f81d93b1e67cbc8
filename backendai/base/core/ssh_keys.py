"""Derives SSH keys (Ed25519) from a secret when they are needed. The keys are never stored."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def derived_key(secret: str, *, salt: str, name: str) -> Ed25519PrivateKey:
    """Return the key for this name. The same secret, salt and name always give the same key."""
    derivation = HKDF(hashes.SHA256(), 32, salt=salt.encode(), info=f"backendai {name}".encode())
    return Ed25519PrivateKey.from_private_bytes(derivation.derive(secret.encode()))


def seed_text(key: Ed25519PrivateKey) -> str:
    """Return the key's seed in hexadecimal."""
    return key.private_bytes_raw().hex()


def key_of(seed: str) -> Ed25519PrivateKey:
    """Return the key of this seed (hexadecimal). Raises ValueError for an invalid seed."""
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))


def private_text(key: Ed25519PrivateKey) -> str:
    """Return a private key in OpenSSH's file format, without a passphrase."""
    kind = serialization.PrivateFormat.OpenSSH
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode()


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public key as a line of ``authorized_keys``, without a comment."""
    public = key.public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
