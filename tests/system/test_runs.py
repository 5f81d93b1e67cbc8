"""A large pipeline whose control process is killed again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.patience import patient
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.long]
STEPS, LAYER, KILLS = 500, 10, 6


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    extra = {"BACKENDAI_SIMULATED_TIME_SCALE": "0", "BACKENDAI_AGENT_SLOTS": "cpu=64,mem=64g"}
    with Platform(tmp_path_factory.mktemp("runs"), backend="simulated", extra=extra) as platform:
        yield platform


def pipeline() -> dict[str, Any]:
    """Return layers of ten steps, each after two of the layer before."""
    steps: dict[str, Any] = {}
    for number in range(STEPS):
        layer, place = divmod(number, LAYER)
        before = [f"s{(layer - 1) * LAYER + (place + shift) % LAYER}" for shift in (0, 1)] if layer else []
        steps[f"s{number}"] = {"startup_command": "sleep 0"} | ({"after": before} if before else {})
    defaults = {"image": "tiny", "resources": {"cpu": 1, "mem": "64m"}}
    return {"kind": "pipeline", "name": "large", "defaults": defaults, "steps": steps}


def test_a_pipeline_of_500_steps_passes_through_kills_of_control(platform: Platform) -> None:
    client = platform.client
    run = client.post("runs/", {"document": pipeline()})
    path, killed, deadline = f"runs/{run['id']}/", 0, time.monotonic() + patient(300)
    while not (found := client._get(path).json())["ended_at"]:
        assert time.monotonic() < deadline, found["counts"]
        # Spread over the run, so that each hits another moment between decision, release and end.
        if killed < KILLS and found["counts"]["succeeded"] > killed * STEPS // (KILLS + 1):
            platform.wait_for_restart("control", platform.kill("control"))
            killed += 1
        time.sleep(0.2)
    assert (found["status"], found["counts"]["succeeded"], killed) == ("SUCCEEDED", STEPS, KILLS)
    tasks = client._get(f"{path}tasks/?page_size=1000").json()["results"]
    assert [task["attempt"] for task in tasks] == [1] * STEPS, "no step ran twice"
    sessions = {session["id"] for session in client.sessions() if session["name"].startswith("large-s")}
    assert sessions == {task["session"] for task in tasks}, "no session without an element"
    platform.audit()
