"""A passkey in software: it answers like a device whose owner always agrees."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256

_PRESENT, _VERIFIED, _HAS_KEY = 0x01, 0x04, 0x40


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class SoftKey:
    """One credential. ``origin`` is what the browser would say; ``verified`` whether it asked for a PIN."""

    def __init__(self, origin: str, *, verified: bool = True) -> None:
        self.origin, self.flags = origin, _PRESENT | (_VERIFIED if verified else 0)
        self.id = secrets.token_bytes(16)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.user_handle = ""

    def create(self, options: dict[str, Any]) -> str:
        """Answer the question for a new credential."""
        asked = options["publicKey"]
        self.user_handle = asked["user"]["id"]
        public = cbor.encode(dict(ES256.from_cryptography_key(self.key.public_key())))
        data = self._data(asked["rp"]["id"], self.flags | _HAS_KEY)
        data += bytes(16) + len(self.id).to_bytes(2, "big") + self.id + public
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        response = {"clientDataJSON": self._said("create", asked), "attestationObject": b64(attestation)}
        return self._credential(response, {"credProps": {"rk": True}})

    def get(self, options: dict[str, Any]) -> str:
        """Answer the question for a proof."""
        asked = options["publicKey"]
        said, data = self._said("get", asked), self._data(asked["rpId"], self.flags)
        plain = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))
        signature = self.key.sign(data + hashlib.sha256(plain).digest(), ec.ECDSA(hashes.SHA256()))
        response = {"clientDataJSON": said, "authenticatorData": b64(data), "signature": b64(signature)}
        return self._credential(response | {"userHandle": self.user_handle}, {})

    def _said(self, kind: str, asked: dict[str, Any]) -> str:
        said = {"type": f"webauthn.{kind}", "challenge": asked["challenge"], "origin": self.origin}
        return b64(json.dumps(said | {"crossOrigin": False}).encode())

    def _data(self, site: str, flags: int) -> bytes:
        return hashlib.sha256(site.encode()).digest() + bytes([flags]) + bytes(4)

    def _credential(self, response: dict[str, Any], results: dict[str, Any]) -> str:
        name = {"id": b64(self.id), "rawId": b64(self.id), "type": "public-key"}
        return json.dumps(name | {"response": response, "clientExtensionResults": results})
