"""Tickets for an agent's gateway, signed by the portal: valid for a short time, for one kernel and one purpose. Agents
have only the public key, so they cannot issue tickets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast
from uuid import UUID

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from backendai.base.core.errors import PlatformError

Purpose = Literal["terminal", "log", "execute", "files", "shell", "app", "home", "cut"]
LIFETIME_SECONDS = 30
_ALGORITHM = "EdDSA"


class TicketRefused(PlatformError):
    """The ticket is forged, expired, or for another purpose."""

    code = "ticket-refused"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to reach one kernel for one purpose until ``expires_at`` (epoch seconds). It holds for one generation
    of the kernel; for an app, it holds for that service and port only."""

    kernel_id: UUID
    generation: int
    purpose: Purpose
    expires_at: float
    service: str = ""
    port: int = 0


def new_private_key() -> str:
    """Return a fresh Ed25519 private key as PEM."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode()


def public_key_of(private_key: str) -> str:
    """Return the PEM public key that belongs to a PEM private key."""
    key = _private(private_key).public_key()
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def sign_ticket(
    private_key: str,
    *,
    kernel_id: UUID,
    generation: int,
    purpose: Purpose,
    now: float,
    service: str = "",
    port: int = 0,
) -> str:
    """Return a ticket that a gateway accepts for ``LIFETIME_SECONDS`` from ``now`` (epoch seconds)."""
    claims: dict[str, str | int | float] = {"kernel": str(kernel_id), "gen": generation, "for": purpose}
    claims |= {"exp": now + LIFETIME_SECONDS}
    if service:
        claims |= {"service": service, "port": port}
    return jwt.encode(claims, _private(private_key), algorithm=_ALGORITHM)


def read_ticket(public_key: str, token: str, *, purpose: Purpose, now: float) -> Ticket:
    """Return the ticket's content. Raises TicketRefused if it is forged, expired or for another purpose. The caller
    compares kernel, generation, service and port."""
    try:
        claims = jwt.decode(token, _public(public_key), algorithms=[_ALGORITHM], options={"verify_exp": False})
        about = (str(claims.get("service", "")), int(claims.get("port", 0)))
        ticket = Ticket(UUID(claims["kernel"]), int(claims["gen"]), claims["for"], float(claims["exp"]), *about)
    except (jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
        raise TicketRefused("The ticket is not valid.") from error
    if now > ticket.expires_at:
        raise TicketRefused("The ticket has expired.")
    if ticket.purpose != purpose:
        raise TicketRefused("The ticket is for another purpose.")
    return ticket


@lru_cache(maxsize=8)  # reading the text takes two fifths of what a ticket costs
def _private(pem: str) -> Ed25519PrivateKey:
    return cast(Ed25519PrivateKey, serialization.load_pem_private_key(pem.encode(), password=None))


@lru_cache(maxsize=8)
def _public(pem: str) -> Ed25519PublicKey:
    return cast(Ed25519PublicKey, serialization.load_pem_public_key(pem.encode()))
