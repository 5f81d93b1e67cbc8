"""The base class of job handlers."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from backendai.agent.backends.base import Backend, Fetched
from backendai.base.wire.capabilities import Capability


class JobUnwanted(Exception):
    """Raised inside a handler when its job was cancelled or the agent stops; never reported."""


class JobProgress(Protocol):
    """A handler's progress reports. Both reports raise JobUnwanted, and BackendError after the job's time limit."""

    def tell(self, message: str, *, phase: str = "", share: float | None = None) -> None:
        """Report this progress at once."""

    def heed(self, fetched: Fetched) -> None:
        """Report the progress if the last report is over 2 s old. Call it often."""

    def seconds_left(self) -> float:
        """Return the seconds until the job's time limit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a successful job."""

    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)


class JobHandler(abc.ABC):
    """One kind of job. ``needs``: the capability that its backend must have. ``at_once``: how many jobs run in
    parallel. ``is_repeatable``: a job interrupted by the agent's end starts again, instead of failing."""

    kind: str
    work: type[BaseModel]
    begins: str = "The agent begins."
    needs: Capability | None = None
    at_once = 1
    is_repeatable = True

    def __init__(self, backend: Backend, on_images_changed: Callable[[], None]) -> None:
        self._backend, self._on_images_changed = backend, on_images_changed

    @abc.abstractmethod
    def run(self, work: Any, progress: JobProgress) -> Outcome:
        """Do the job and return its outcome. Raises BackendError with the reason of a failure."""

    def undo(self, work: Any) -> None:
        """Delete the leftovers of a failed or cancelled job. Raises PlatformError."""
        return
