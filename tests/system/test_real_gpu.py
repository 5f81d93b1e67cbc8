"""A whole platform on a machine with NVIDIA GPUs: who gets them, who waits, what is measured, what is left."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.accelerators.machines import GpuMachine
from tests.patience import until
from tests.system.platform import Platform

pytestmark = [pytest.mark.gpu, pytest.mark.system]
_LOAD = Path(__file__).with_name("gpu_load.py").read_text()
_MEASURED_SECONDS, _HELD_BYTES = 60, 512 * 2**20
_SLOT = "cuda.device"


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    if not shutil.which("nvidia-smi"):
        pytest.skip("there is no nvidia-smi")
    with Platform(tmp_path, backend="process", extra={"BACKENDAI_AGENT_SLOTS": "cpu=4,mem=16g"}) as platform:
        yield platform


def launch(platform: Platform, gpus: int, seconds: int) -> str:
    files = [{"path": "load.py", "content": _LOAD}]
    wish = {"image": "python", "type": "batch", "files": files, "startup_command": f"python3 load.py {seconds}"}
    amounts = {"cpu": "1", "mem": "4g"} | ({_SLOT: str(gpus)} if gpus else {})
    return str(platform.client.launch("", resources=amounts, **wish)["id"])


def programs_on_gpus() -> list[str]:
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()


def test_a_session_has_its_gpus_alone_and_the_next_one_waits_until_it_ends(platform: Platform) -> None:
    client, gpus, before = platform.client, len(GpuMachine().gpus), programs_on_gpus()
    first = launch(platform, gpus, 600)
    client.wait_until_running(first)
    second, without = launch(platform, 1, 1), launch(platform, 0, 1)
    until(lambda: "GPU" in client.session(second)["status_message"], 30, "the second session names what is short")
    assert client.session(second)["status"] == "PENDING"

    points = until(lambda: busy_points(platform, first), _MEASURED_SECONDS, "use and memory of the GPU are measured")
    assert max(point["memory"][_SLOT] for point in points) >= _HELD_BYTES
    assert client.wait_for(without, "TERMINATED")["result"] == "SUCCESS"
    assert "GPUs: 0" in client.log(without)
    assert f"GPUs: {gpus}" in client.log(first)

    client.end(first)
    assert client.wait_for(second, "TERMINATED")["result"] == "SUCCESS"
    assert "GPUs: 1" in client.log(second)
    assert set(programs_on_gpus()) <= set(before)
    platform.audit()


def busy_points(platform: Platform, session_id: str) -> list[dict[str, Any]]:
    told = platform.client._get(f"sessions/{session_id}/usage/?seconds=120&points=120").json()
    return [point for point in told["points"] if point["used"].get(_SLOT, 0) > 0.05 and point["memory"].get(_SLOT)]
