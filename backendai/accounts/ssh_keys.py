"""Public keys as people paste them."""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from backendai.core.errors import UserError
from backendai.core.messages import Message

LONGEST_KEY = 8192
LEAST_RSA_BITS = 2048
_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def read_public_key(text: str) -> tuple[str, str, str]:
    """Return type and content without the comment, the fingerprint as ``ssh-keygen -l`` writes it, and the comment.
    Raises UserError for whatever is no public key that is strong enough; options before the key are refused too."""
    words = text.strip().split(None, 2)
    if "PRIVATE KEY" in text:
        raise _refused(
            Message("This is a private key: keep it to yourself. Paste the public one, of the file named .pub.")
        )
    if len(text) > LONGEST_KEY or len(text.strip().splitlines()) != 1 or len(words) < 2 or words[0] not in _KINDS:
        raise _refused(Message("Paste one public key on one line, beginning with one of {kinds}.", kinds=_KINDS[:5]))
    plain = f"{words[0]} {words[1]}"
    try:
        key = load_ssh_public_key(plain.encode())
        content = base64.b64decode(words[1], validate=True)
    except (ValueError, UnsupportedAlgorithm):
        raise _refused(Message("The key is damaged: copy it anew, whole.")) from None
    if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
        raise _refused(
            Message(
                "This RSA key has {key_size} bits; use at least {least_rsa_bits}, or an Ed25519 key.",
                key_size=key.key_size,
                least_rsa_bits=LEAST_RSA_BITS,
            )
        )
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return plain, f"SHA256:{digest}", words[2] if len(words) > 2 else ""


def _refused(text: str) -> UserError:
    return UserError(text, field="public_key", code="invalid-ssh-key")
