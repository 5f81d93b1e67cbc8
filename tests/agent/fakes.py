"""Backends that go wrong on purpose, for tests of the agent: simulated ones with one bad habit each."""

from __future__ import annotations

import threading
from typing import Any, NoReturn
from uuid import UUID

from backendai.agent.backends.base import Backend, BackendError, Ended, Started, StartFailed
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import KernelSighting, KernelSpec

AT_ONCE = SimulatedDurations(start_seconds=0, batch_seconds=0, line_seconds=0, pull_seconds=0, time_scale=0)
FIRST_WORDS = "The engine refuses to start the kernel."
LAST_WORDS = "The kernel died soon after its start."
NO_ANSWER = "The engine does not answer."


class InstantBackend(SimulatedBackend):
    """A healthy backend on which everything happens at once."""

    def __init__(self, **over: Any) -> None:
        room = Slots.parse({"cpu": 64, "mem": "256g"})
        super().__init__(**{"deployment": "test", "capacity": room, "pace": AT_ONCE} | over)


class SlowBackend(InstantBackend):
    """Each start waits until the test sets ``go_on``; ``started`` tells that one waits."""

    def __init__(self, **over: Any) -> None:
        super().__init__(**over)
        self.started, self.go_on = threading.Event(), threading.Event()

    def start(self, spec: KernelSpec) -> Started:
        self.started.set()
        if not self.go_on.wait(60):
            raise StartFailed("The test never let the start go on.")
        return super().start(spec)


class NeverStarts(SlowBackend):
    """No start ever succeeds: it waits until the test sets ``give_up``, and then fails."""

    def __init__(self, **over: Any) -> None:
        super().__init__(**over)
        self.give_up = self.go_on

    def start(self, spec: KernelSpec) -> Started:
        self.started.set()
        self.give_up.wait(60)
        raise StartFailed(FIRST_WORDS)


class FailsAtOnce(InstantBackend):
    """Every start is refused."""

    def start(self, spec: KernelSpec) -> Started:
        raise StartFailed(FIRST_WORDS)


class FailsLate(InstantBackend):
    """Every kernel starts, and ends with exit code 1 when the test says ``fail``."""

    def __init__(self, **over: Any) -> None:
        super().__init__(**over)
        self._failed: set[UUID] = set()

    def fail(self, kernel_id: UUID) -> None:
        """Let the main process of a running kernel die."""
        self._failed.add(kernel_id)
        super().stop(kernel_id, grace=0)

    def ended(self, kernel_id: UUID) -> Ended | None:
        ended = super().ended(kernel_id)
        return Ended(1, "exited", LAST_WORDS) if kernel_id in self._failed else ended

    def kernels(self) -> list[KernelSighting]:
        failed = {"running": False, "exit_code": 1}
        return [one.model_copy(update=failed if one.kernel_id in self._failed else {}) for one in super().kernels()]


class EngineDown(InstantBackend):
    """While ``down`` is set (as at first) the engine answers nothing."""

    def __init__(self, **over: Any) -> None:
        super().__init__(**over)
        self.down = True

    def __getattribute__(self, name: str) -> Any:
        if name in _QUESTIONS and object.__getattribute__(self, "down"):
            return _no_answer
        return super().__getattribute__(name)


_QUESTIONS = Backend.__abstractmethods__ - {"close"}


def _no_answer(*args: object, **options: object) -> NoReturn:
    raise BackendError(NO_ANSWER)
