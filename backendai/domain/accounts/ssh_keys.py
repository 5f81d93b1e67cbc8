"""Reads public SSH keys, and verifies who holds them."""

from __future__ import annotations

import base64
import hashlib

from asyncssh import Error as AsyncSSHError
from asyncssh import validate_sshsig
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

LONGEST_KEY = LONGEST_PROOF = 8192
PROOF_NAMESPACE = "backendai"
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
    """Return type and content of the key, its fingerprint, and its comment.

    The fingerprint is as ``ssh-keygen -l`` prints it. Raises UserError for text that is no strong public key, or has
    options before the key.
    """
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
        raise _refused(Message("The key is damaged: copy the whole key again.")) from None
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


def proof_text(email: str) -> str:
    """Return the text that the holder of a key signs to prove ownership."""
    return f"This SSH key belongs to {email}."


def is_proved(public_key: str, email: str, signature: str) -> bool:
    """Return whether the signature (of ``ssh-keygen -Y sign``) proves that the account holds the key."""
    signers = f'* namespaces="{PROOF_NAMESPACE}" {public_key}\n'.encode()
    texts = (proof_text(email), f"{proof_text(email)}\n", f"{proof_text(email)}\r\n")  # as shells of all kinds pipe it
    try:
        return any(validate_sshsig(text.encode(), signature.strip().encode(), email, signers) for text in texts)
    except (ValueError, AsyncSSHError):
        return False


def _refused(text: str) -> UserError:
    return UserError(text, field="public_key", code="invalid-ssh-key")
