"""What a node says about itself while its engine answers, and while it does not."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.loop.machine import Machine
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import SyncUp
from tests.slow_machines import BUSY, make_machine


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
    engine = Engine(deployment="test", capacity=Slots.parse({"cpu": 4, "mem": "8g"}), pace=SimulatedDurations())
    engine.is_down = True
    machine = Machine(engine, offered=lambda capacity: capacity, gateway_url="")
    told = say(machine)
    assert (told.images, told.draining, [note.code for note in told.notes]) == (None, True, ["engine-unreachable"])
    engine.is_down = False
    told = say(machine)
    assert told.images
    assert told.capacity == {"cpu": "4", "mem": str(8 * 2**30)}


def test_it_says_how_slow_it_is_if_kernels_run_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(deployment="test", capacity=Slots.parse({"cpu": 4, "mem": "8g"}), pace=SimulatedDurations())
    machine = Machine(engine, offered=lambda capacity: capacity, gateway_url="")
    make_machine(monkeypatch, BUSY)
    assert say(machine).slowness == 6
    engine.is_here = False  # the machines of a cluster are others
    assert say(machine).slowness == 1


def test_it_says_how_much_disk_is_free_and_when_that_is_below_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(deployment="test", capacity=Slots.parse({"cpu": 4, "mem": "8g"}), pace=SimulatedDurations())
    engine.storage = lambda: [tmp_path, Path("/nowhere")]  # type: ignore[method-assign]
    engine.engine = lambda: "Docker 20.10.24"  # type: ignore[method-assign]
    usage = {"free": 6 * 2**30}
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk_of(Path(folder), tmp_path, usage["free"]))
    machine = Machine(engine, offered=lambda capacity: capacity, gateway_url="", disk_reserve=5.0)
    told = say(machine)
    assert told.live and (told.live.disk_free, told.live.disk_total) == (6 * 2**30, 100 * 2**30)
    assert (told.engine, told.os_kernel, told.low_disk) == ("Docker 20.10.24", platform.release(), False)
    usage["free"] = 4 * 2**30
    told = say(machine)
    note = next(note for note in told.notes if note.code == "disk-low")
    assert told.low_disk and "4 GiB of 100 GiB are free" in note.message and "reserve of 5 %" in note.message
    without = say(Machine(engine, offered=lambda capacity: capacity, gateway_url="", disk_reserve=0.0))
    assert not without.low_disk


def disk_of(folder: Path, there: Path, free: int) -> Any:
    if folder != there:
        raise FileNotFoundError(folder)
    return shutil._ntuple_diskusage(100 * 2**30, 100 * 2**30 - free, free)  # type: ignore[attr-defined]


def test_it_says_how_busy_the_machine_is() -> None:
    engine = Engine(deployment="test", capacity=Slots.parse({"cpu": 4, "mem": "8g"}), pace=SimulatedDurations())
    live = say(Machine(engine, offered=lambda capacity: capacity, gateway_url="")).live
    assert live is not None and live.mem_used is not None and live.mem_total is not None and live.load is not None
    assert 0 < live.mem_used < live.mem_total
    assert live.cpu_pct is None or 0 <= live.cpu_pct <= 100
