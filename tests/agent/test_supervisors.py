"""Supervisors of kernels, from their first moment on."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.supervisors import Supervisors


def test_a_supervisor_is_found_and_killed_before_its_kernel_has_started(tmp_path: Path) -> None:
    folder = KernelFolder(tmp_path / str(uuid4()))
    folder.path.mkdir()
    supervisors = Supervisors(["-c", "import time; time.sleep(600)"])
    assert not supervisors.start(folder, timeout=0.0)
    (supervisor,) = folder.processes()
    folder.kill()
    assert not psutil.pid_exists(supervisor)
    supervisors.reap()


def test_a_start_that_fails_leaves_no_descriptor_open(tmp_path: Path) -> None:
    supervisors, before = Supervisors(["-c", "pass"]), set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file"):
        supervisors.start(KernelFolder(tmp_path / "gone" / str(uuid4())), timeout=0.0)
    assert set(os.listdir("/proc/self/fd")) <= before
