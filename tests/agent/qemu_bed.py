"""QEMU for tests: where ``bin/qemu-bed build`` has unpacked it, else as the machine has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.qemu.boot import newest_kernel
from backendai.agent.backends.qemu.tools import QemuTools
from backendai.agent.settings.qemu import QemuSettings

EMULATED_START = 480.0  # seconds, as the portal orders for emulated machines
BED = Path("/var/tmp/backendai/qemu-bed")


def machine_settings(cache: Path) -> QemuSettings:
    """Return settings for emulated machines; a machine without QEMU skips, visibly."""
    root = BED if (BED / "complete").exists() else Path("/")
    try:
        newest_kernel(root)
    except BackendError:
        pytest.skip("there is no QEMU with a kernel here: bin/qemu-bed build fetches them (half a minute, once)")
    if missing := QemuTools(root).missing():
        pytest.skip(f"{', '.join(missing)} is not installed: bin/qemu-bed build fetches it (half a minute, once)")
    return QemuSettings(root=root, cache=cache, acceleration="tcg")
