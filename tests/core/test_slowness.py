"""How much slower than usual a machine is, and the time limits that follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendai.base.process import slowness
from backendai.base.process.slowness import MOST, Measure, allowed
from tests.slow_machines import BUSY, QUIET, make_machine


@pytest.mark.parametrize(
    ("found", "factor"),
    [
        (QUIET, 1.0),
        (QUIET._replace(load=1.9), 1.0),
        (QUIET._replace(load=5.0), 2.5),
        (QUIET._replace(waiting=0.5), 2.0),
        (QUIET._replace(waiting=0.999), 4.0),
        (QUIET._replace(pace=2.0), 2.0),
        (QUIET._replace(pace=0.5, load=6.0), 3.0),
        (Measure(load=4.0, cores=2, waiting=0.6, pace=2.0), 5.0),
        (Measure(load=400.0, cores=2, waiting=1.0, pace=9.0), MOST),
    ],
)
def test_load_pressure_and_pace_make_the_factor(found: Measure, factor: float) -> None:
    assert slowness.slowness(found) == pytest.approx(factor)


def test_time_limits_grow_with_it_and_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    make_machine(monkeypatch, BUSY)
    assert allowed(20.0) == 120.0
    assert allowed(20.0, own=4) == 160.0, "emulated machines on a busy one are not slower without end"
    assert allowed(20.0, own=30) == 600.0
    make_machine(monkeypatch)
    assert (allowed(20.0), allowed(20.0, own=4)) == (20.0, 80.0)


def test_pressure_is_read_where_the_kernel_measures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cpu"
    monkeypatch.setattr(slowness, "_PRESSURE", str(file))
    for said, waiting in (("some avg10=25.00 avg60=0.00 total=9\nfull avg10=0.00", 0.25), ("", 0.0), ("some x", 0.0)):
        file.write_text(said)
        assert slowness.measure().waiting == waiting
    file.unlink()
    found = slowness.measure()
    assert (found.waiting, found.cores >= 1, found.pace > 0) == (0.0, True, True)
