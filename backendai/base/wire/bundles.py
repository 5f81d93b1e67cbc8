"""Bundles: requests and reports of several threads of an agent, sent to the portal in one call to save round trips."""

from __future__ import annotations

from uuid import UUID

from pydantic import Base64Bytes, Field

from backendai.base.wire.fields import Generation, Message, Order
from backendai.base.wire.messages import KernelReport, KernelSpec

MOST_IN_BUNDLE = 64
LARGEST_BUNDLED_LOG = 12 * 2**10  # bytes before their encoding; keeps a bundle below the portal's limit for requests
_LARGEST_ENCODED = LARGEST_BUNDLED_LOG * 4 // 3  # Base64 has four characters for three bytes


class BundledLog(Message):
    """The last part of the output of an ended kernel. ``truncated``: earlier output is missing."""

    kernel_id: UUID
    generation: Generation
    content: Base64Bytes = Field(max_length=_LARGEST_ENCODED, repr=False)
    truncated: bool = False


class BundleUp(Message):
    """An agent's logs, reports and requests for specs in one call. ``specs``: the kernels whose spec the agent needs.
    The portal handles logs first, then reports, then specs."""

    specs: list[UUID] = Field(default_factory=list, max_length=MOST_IN_BUNDLE)
    logs: list[BundledLog] = Field(default_factory=list, max_length=MOST_IN_BUNDLE)
    reports: list[KernelReport] = Field(default_factory=list, max_length=MOST_IN_BUNDLE)


class BundleDown(Order):
    """The answers to a bundle. ``specs``: specs of the requested kernels that should still run. ``kept``: for each log
    in order, whether it is stored (False: the kernel is not on this agent). ``applied``: for each report in order,
    whether the portal still wants the kernel (None: it refuses the report, as the kernel is not on this agent, or its
    home is not stored yet)."""

    specs: list[KernelSpec] = Field(default_factory=list)
    kept: list[bool] = Field(default_factory=list)
    applied: list[bool | None] = Field(default_factory=list)
