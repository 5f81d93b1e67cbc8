"""Certificates for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

KEY = ec.generate_private_key(ec.SECP256R1())


@lru_cache
def certificate(name: str = "Lab Root CA", ends_at: datetime = datetime(2040, 1, 2, tzinfo=UTC)) -> str:
    """Return the certificate of an authority in PEM."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    built = built.serial_number(7).not_valid_before(ends_at - timedelta(days=9000)).not_valid_after(ends_at)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return built.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def private_key() -> str:
    """Return a private key in PEM."""
    return KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
