"""Messages of a process that speaks for many nodes: one call for all of them, each with its own token."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field, field_validator

from backendai.base.wire.fields import Message, Order
from backendai.base.wire.messages import PROTOCOL, KernelReport, KernelSpec, StopOrder, SyncDown, SyncUp

FLEET_WORDS = 64  # of one node in one call: words about one kernel are taken in one after the other


class KernelLogTail(Message):
    """The end of the output of a kernel that has ended."""

    kernel_id: UUID
    generation: int
    text: str = Field(max_length=64 * 2**10)
    truncated: bool = False


class FleetNode(Message):
    """One node of a process that speaks for many: who it is, and what it has to say now. ``up`` is left out when none
    is due. ``known``: kernels (id, generation) whose spec it has and that do not run yet. What is more than a call
    takes is said in the next one."""

    token: str = Field(max_length=128)
    up: SyncUp | None = None
    logs: list[KernelLogTail] = Field(default_factory=list, max_length=FLEET_WORDS)
    reports: list[KernelReport] = Field(default_factory=list, max_length=FLEET_WORDS)
    known: list[tuple[UUID, int]] = Field(default_factory=list, max_length=10_000)


class FleetUp(Message):
    """What many nodes say in one call, each once. Each has its own token and reaches its own kernels only."""

    protocol: int = PROTOCOL
    nodes: list[FleetNode] = Field(min_length=1, max_length=2000)

    @field_validator("nodes")
    @classmethod
    def _speak_once(cls, nodes: list[FleetNode]) -> list[FleetNode]:
        if len({node.token for node in nodes}) < len(nodes):
            raise ValueError("a node may speak once in a call")
        return nodes


class FleetAnswer(Order):
    """The answer to one node. ``status``: what a call of its own would get; only with 200 the rest counts.

    ``down`` answers a sync, ``applied`` the reports one by one (False: not wanted any more), ``start`` holds the specs
    of kernels that it should start and did not name as known, ``stop`` what must end.
    """

    status: int = 200
    code: str = ""
    detail: str = ""
    down: SyncDown | None = None
    applied: list[bool] = Field(default_factory=list)
    start: list[KernelSpec] = Field(default_factory=list)
    stop: list[StopOrder] = Field(default_factory=list)


class FleetDown(Order):
    """The answers in the order of the nodes."""

    nodes: list[FleetAnswer]
