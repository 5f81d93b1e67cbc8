"""What a node says about itself while its engine answers, and while it does not."""

from __future__ import annotations

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.simulated import Pace, SimulatedBackend
from backendai.agent.machine import Machine
from backendai.core.slots import Slots
from backendai.wire.messages import SyncUp


class Engine(SimulatedBackend):
    """Answers unless it is down."""

    is_down = False

    def capacity(self) -> Slots:
        if self.is_down:
            raise BackendError("It does not answer.", code="engine-unreachable")
        return super().capacity()


def say(machine: Machine) -> SyncUp:
    return machine.describe([], engine_fault="", draining=False, wait=0.0)


def test_an_engine_that_is_down_has_not_lost_its_images() -> None:
    engine = Engine(deployment="test", capacity=Slots.parse({"cpu": 4, "mem": "8g"}), pace=Pace())
    engine.is_down = True
    machine = Machine(engine, offered=lambda capacity: capacity, gateway_url="")
    told = say(machine)
    assert (told.images, told.draining, [note.code for note in told.notes]) == (None, True, ["engine-unreachable"])
    engine.is_down = False
    told = say(machine)
    assert told.images
    assert told.capacity == {"cpu": "4", "mem": str(8 * 2**30)}


def test_it_says_how_busy_the_machine_is() -> None:
    engine = Engine(deployment="test", capacity=Slots.parse({"cpu": 4, "mem": "8g"}), pace=Pace())
    live = say(Machine(engine, offered=lambda capacity: capacity, gateway_url="")).live
    assert live is not None and live.mem_used is not None and live.mem_total is not None and live.load is not None
    assert 0 < live.mem_used < live.mem_total
    assert live.cpu_pct is None or 0 <= live.cpu_pct <= 100
