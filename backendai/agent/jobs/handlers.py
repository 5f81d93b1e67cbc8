"""What a kind of job is on an agent, and which kinds this agent knows: one module of ``agent.job_kinds`` for each."""

from __future__ import annotations

import abc
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from pydantic import BaseModel

from backendai.agent import job_kinds
from backendai.agent.backends.abilities import capabilities_with
from backendai.agent.backends.base import Backend, Fetched
from backendai.wire.capabilities import Capability


class JobUnwanted(Exception):
    """Leaves through a handler when its job was cancelled or the agent stops: a signal, not an error."""


class JobProgress(Protocol):
    """What a handler tells while it works. Both calls raise JobUnwanted, or BackendError when the time is up."""

    def tell(self, message: str, *, phase: str = "", share: float | None = None) -> None:
        """Report at once."""

    def heed(self, fetched: Fetched) -> None:
        """Report if the last report was some time ago; to be called often."""

    def seconds_left(self) -> float:
        """Return how long the job may still take."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job that succeeded."""

    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)


class JobHandler(abc.ABC):
    """One kind of job. ``needs``: what a backend must be able to do for it. ``at_once``: how many of them run side by
    side. ``is_repeatable``: a job that the end of the agent interrupted begins anew; else it fails then."""

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
        """Do it and return what came of it. Raises BackendError with the reason when it cannot be done."""

    def undo(self, work: Any) -> None:
        """Delete what a job left that failed or that nobody wants any more. Raises PlatformError."""
        return


def handlers_for(backend: Backend) -> list[type[JobHandler]]:
    """Return the handlers of the jobs that can be done with this backend."""
    can = capabilities_with(backend)
    return [one for one in job_handlers() if one.needs is None or one.needs in can]


def job_handlers() -> list[type[JobHandler]]:
    """Return the handler of each kind of job that this agent knows."""
    names = [f"{job_kinds.__name__}.{one.name}" for one in pkgutil.iter_modules(job_kinds.__path__)]
    return [import_module(name).Handler for name in names]
