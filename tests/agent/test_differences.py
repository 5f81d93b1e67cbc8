"""The table of the user guide about what sessions can do where is what the backends declare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backendai.agent.backends.abilities import declared_by
from backendai.agent.backends.base import Backend
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.backends.native.backend import NativeBackend
from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.base.wire.capabilities import Capability

GUIDE = Path(__file__).parents[2] / "docs" / "user-guide.md"
ROWS = {
    "Terminal": Capability.TERMINAL,
    "Apps (JupyterLab and others)": Capability.APPS,
    "Console, files of the home, SSH": Capability.EXECUTION,
    "Folders": Capability.FOLDERS,
    "Saving as an image": Capability.COMMIT,
    "Stopping, and resuming later": Capability.HOMES,
    "Resource usage": Capability.READINGS,
    "Programs reach other machines": Capability.ISOLATED,  # a trait: who has it does not
    "Serving models": Capability.SERVING,
    "A network of its own": Capability.OWN_NETWORK,
    "A limit on what it writes": Capability.SIZE_LIMITS,
    "One session over several agents": Capability.CLUSTER_NETWORK,
    "SSH between kernels, and host files": Capability.CLUSTER_FILES,
}
COLUMNS: list[type[Backend]] = [DockerBackend, KubernetesBackend, QemuBackend, NativeBackend]


def has(backend: type[Backend], row: str) -> bool:
    return (ROWS[row] in declared_by(backend)) != (ROWS[row] == Capability.ISOLATED)


@pytest.mark.parametrize("row", ROWS)
def test_the_user_guide_says_what_the_backends_declare(row: str) -> None:
    found = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", GUIDE.read_text(), re.MULTILINE)
    assert found is not None, f"the table has no row {row}"
    declared = ["yes" if has(backend, row) else "no" for backend in COLUMNS]
    assert [cell.strip() for cell in found[1].split("|")] == declared
