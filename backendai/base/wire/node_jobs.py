"""Jobs of agents besides kernels: pull, save or delete an image, store a home.

``kind`` determines the keys of ``work`` and ``result``. New kinds may be added at any time: an agent rejects only a job
of an unknown kind, not the whole sync.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field, JsonValue

from backendai.base.wire.fields import Name, Order, Share, TextReport

MOST_RESULTS = 16
CAPABILITY = "job."  # an agent that can do jobs of a kind reports the capability job.KIND


class JobState(StrEnum):
    """State of an agent's job (such as a pull of an image), as the agent reports it."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"


class NodeJobOrder(Order):
    """An order to run a job. The agent fetches the work when it starts the job. ``attempt``: the number of the try,
    which the agent runs once."""

    kind: str
    job_id: UUID
    attempt: int = 1


class NodeJobSpec(NodeJobOrder):
    """A job with its work, which sometimes contains secrets. ``seconds``: the remaining time. ``has_started``: the
    portal has a report of this attempt, so the agent was interrupted."""

    seconds: float = 1800.0
    has_started: bool = False
    work: dict[str, JsonValue] = Field(default_factory=dict, repr=False)


class NodeJobReport(TextReport):
    """Progress of a job, or its result. ``phase``: the current step of the job; each kind has its own steps."""

    kind: Name
    job_id: UUID
    attempt: int = Field(default=1, ge=0, lt=2**31)
    state: JobState
    phase: Name = ""
    progress: Share = None
    result: Annotated[dict[Name, JsonValue], Field(max_length=MOST_RESULTS)] = Field(default_factory=dict)
