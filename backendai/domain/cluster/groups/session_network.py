"""Validates the settings for the network of sessions: certificate authorities, package indexes and proxies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

LARGEST_BUNDLE = 128 * 2**10
_LONGEST_URL, _MOST_LINES = 500, 20
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_HOST = re.compile(
    r"(\*?\.)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:\d{1,5})?|\[?[0-9a-fA-F:]+\]?(/\d+)?|[0-9.]+/\d+"
)
_CODE = "invalid-setting"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate of the bundle: its subject, and the end of its validity."""

    subject: str
    ends_at: datetime

    @property
    def has_expired(self) -> bool:
        """Whether the certificate has expired."""
        return self.ends_at <= datetime.now(UTC)


def clean_authorities(name: str, value: Any) -> str:
    """Return the certificates in PEM, without surrounding text. Raises UserError that names the invalid one."""
    text = _text(name, value)
    if len(text) > LARGEST_BUNDLE:
        raise _wrong(
            name,
            Message(
                "The bundle has {number} characters; at most {largest_bundle} are allowed.",
                number=len(text),
                largest_bundle=LARGEST_BUNDLE,
            ),
        )
    if "PRIVATE KEY" in text:
        raise _wrong(
            name, Message("The bundle contains a private key, which every user could read: paste certificates only.")
        )
    found = _certificates(name, text)
    if text.strip() and not found:
        raise _wrong(name, Message("No certificate found: paste PEM blocks (-----BEGIN CERTIFICATE-----)."))
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)


def authorities_of(bundle: str) -> list[Authority]:
    """Return the certificates of a stored bundle."""
    return [Authority(_subject(each), each.not_valid_after_utc) for each in _certificates("", bundle)]


def clean_url(name: str, value: Any) -> str:
    """Return the http or https URL, or an empty text. Raises UserError for an invalid one."""
    text = _text(name, value).strip()
    if text:
        _check_url(name, text)
    return text


def clean_urls(name: str, value: Any) -> list[str]:
    """Return the URLs, one for each line. Raises UserError for an invalid one."""
    lines = _lines(name, value)
    for line in lines:
        _check_url(name, line)
    return lines


def clean_hosts(name: str, value: Any) -> list[str]:
    """Return the host names, one for each line. Raises UserError that quotes the invalid one."""
    hosts = _lines(name, value)
    for host in hosts:
        if host != "*" and not _HOST.fullmatch(host):
            raise _wrong(
                name,
                Message("{host} is not a host: enter names such as pypi.lab.example, one per line.", host=repr(host)),
            )
    return hosts


def for_the_log(name: str, value: Any) -> Any:
    """Return a setting as the audit log records it: without passwords, and certificates only by subject and end."""
    if name == "session_authorities":
        return [
            Message("{subject}, until {ends_at}", subject=each.subject, ends_at=f"{each.ends_at:%Y-%m-%d}")
            for each in authorities_of(value)
        ]
    if isinstance(value, list):
        return [for_the_log(name, each) for each in value]
    return without_password(value) if isinstance(value, str) else value


def without_password(url: str) -> str:
    """Return the URL with stars instead of its user and password."""
    scheme, sign, rest = url.partition("://")
    account, at, host = rest.rpartition("@")
    return f"{scheme}{sign}***@{host}" if at and account else url


def _certificates(name: str, text: str) -> list[x509.Certificate]:
    certificates = []
    for number, block in enumerate(_BLOCK.finditer(text), 1):
        if block[1] not in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"):
            raise _wrong(
                name,
                Message("Block {number} is a {block}; only CERTIFICATE is allowed.", number=number, block=block[1]),
            )
        try:
            certificates.append(x509.load_pem_x509_certificate(block[0].encode()))
        except ValueError as error:
            raise _wrong(
                name, Message("Certificate {number} cannot be read: {error}.", number=number, error=error)
            ) from None
    if text.count("-----BEGIN ") != len(certificates):
        raise _wrong(
            name,
            Message(
                "Certificate {number} is not complete: its END line is missing or differs.",
                number=len(certificates) + 1,
            ),
        )
    return certificates


def _subject(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string() or Message("no name")


def _check_url(name: str, text: str) -> None:
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or len(text) > _LONGEST_URL or not text.isprintable() or " " in text:
        told = without_password(text)[:80]
        raise _wrong(
            name,
            Message(
                "{told} is not an address: enter http:// or https:// and a host, at most {longest_url} characters.",
                told=repr(told),
                longest_url=_LONGEST_URL,
            ),
        )


def _lines(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        value = value.replace(",", "\n").splitlines()
    if not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise _wrong(name, Message("{name}: write a list of texts.", name=name))
    lines = [each.strip() for each in value if each.strip()]
    if len(lines) > _MOST_LINES:
        raise _wrong(
            name,
            Message("{number} lines; at most {most_lines} are allowed.", number=len(lines), most_lines=_MOST_LINES),
        )
    return lines


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, Message("{name}: write a text.", name=name))
    return value


def _wrong(name: str, message: str) -> UserError:
    return UserError(message, field=name, code=_CODE)
