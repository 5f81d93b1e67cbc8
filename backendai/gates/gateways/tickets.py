"""The address of a kernel's gateway, and the ticket that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backendai.base.wire.tickets import Purpose, sign_ticket
from backendai.domain.compute.models import Kernel


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a kernel's gateway, and the header that opens it."""

    url: str
    headers: Mapping[str, str]


def address_of(kernel: Kernel, purpose: Purpose) -> Address:
    """Return the gateway's address of a placed kernel, with a ticket for this purpose."""
    base = kernel.agent.gateway_url.rstrip("/") if kernel.agent else ""
    headers = ticket_for(kernel.pk, kernel.generation, purpose, timezone.now())
    return Address(f"{base}/kernels/{kernel.pk}/{purpose}", headers)


def ticket_for(
    kernel_id: UUID, generation: int, purpose: Purpose, now: datetime, *, service: str = "", port: int = 0
) -> Mapping[str, str]:
    """Return the header that opens the gateway for this purpose; for an app, only for this port."""
    ticket = sign_ticket(
        settings.TICKET_KEY,
        kernel_id=kernel_id,
        generation=generation,
        purpose=purpose,
        now=now.timestamp(),
        service=service,
        port=port,
    )
    return {"Authorization": f"Ticket {ticket}"}
