"""Work that the portal gives to agents beside kernels: fetch an image, make one, delete one, and other kinds to come.

A job is a tagged union that stays open: ``kind`` says what ``work`` and ``result`` hold. An agent can so refuse a kind
that it does not know, instead of the whole sync.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field, JsonValue

from backendai.wire.fields import Name, Order, Share, Telling

MOST_RESULTS = 16
CAPABILITY = "job."  # an agent that can do jobs of a kind reports the capability job.KIND


class JobState(StrEnum):
    """What an agent says about one job."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"


class NodeJobOrder(Order):
    """Do this job; the work itself is fetched when it begins. ``attempt`` grows when a kind wants the same job tried
    again: an agent works on each attempt once."""

    kind: str
    job_id: UUID
    attempt: int = 1


class NodeJobSpec(NodeJobOrder):
    """A job with its work, which may hold secrets. ``seconds``: how long it may take from now on. ``has_begun``: the
    portal has heard of this attempt before, so the agent that asks was interrupted."""

    seconds: float = 1800.0
    has_begun: bool = False
    work: dict[str, JsonValue] = Field(default_factory=dict, repr=False)


class NodeJobReport(Telling):
    """How far an agent is with a job (``phase``: a step of its kind), or what came of it."""

    kind: Name
    job_id: UUID
    attempt: int = Field(default=1, ge=0, lt=2**31)
    state: JobState
    phase: Name = ""
    progress: Share = None
    result: Annotated[dict[Name, JsonValue], Field(max_length=MOST_RESULTS)] = Field(default_factory=dict)
