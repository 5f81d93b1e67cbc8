"""The way to a kernel's gateway, for every door that relays bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from backendai.compute.models import Kernel
from backendai.wire.tickets import Purpose, sign_ticket


@dataclass(frozen=True, slots=True)
class Address:
    """Where a kernel's gateway is, and the header that opens it."""

    url: str
    headers: Mapping[str, str]


def address_of(kernel: Kernel, purpose: Purpose) -> Address:
    """Return where to reach the gateway of a placed kernel, with a ticket for this purpose."""
    ticket = sign_ticket(
        settings.TICKET_KEY, kernel_id=kernel.pk, generation=kernel.generation, purpose=purpose, now=time.time()
    )
    base = kernel.agent.gateway_url.rstrip("/") if kernel.agent else ""
    return Address(f"{base}/kernels/{kernel.pk}/{purpose}", {"Authorization": f"Ticket {ticket}"})
