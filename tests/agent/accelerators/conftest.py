"""Machines with GPUs, made up or real."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.agent.accelerators.machines import FakeMachine, GpuMachine, build_library, make_gpus


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake library."""
    return build_library(tmp_path_factory.mktemp("nvml") / "whole")


@pytest.fixture
def two_gpus(tmp_path: Path, libraries: Path) -> FakeMachine:
    return FakeMachine(tmp_path, libraries, *make_gpus(2))


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def gpu_machine(request: pytest.FixtureRequest, tmp_path: Path, libraries: Path) -> GpuMachine:
    """A machine with GPUs. The real one needs ``pytest -m gpu`` where nvidia-smi is."""
    if request.param == "fake":
        return FakeMachine(tmp_path, libraries, *make_gpus(2))
    if not shutil.which("nvidia-smi"):
        pytest.skip("there is no nvidia-smi")
    return GpuMachine()
