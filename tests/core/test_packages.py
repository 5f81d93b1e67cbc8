"""Messages name the command that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from backendai.base.process import packages
from backendai.base.process.packages import install_command
from backendai.ops.doctor import machine

ROOT = Path(__file__).parents[2]
DEBIAN, UBUNTU = "ID=debian\n", "ID=ubuntu\nID_LIKE=debian\n"
ROCKY, ALMA = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', 'ID="almalinux"\nID_LIKE="rhel centos fedora"\n'
FEDORA, OTHER = "ID=fedora\n", "ID=arch\n"


@pytest.mark.parametrize(
    ("system", "wanted", "lean", "command"),
    [
        (DEBIAN, ["docker.io", "bubblewrap"], False, "apt install docker.io bubblewrap"),
        (UBUNTU, ["skopeo"], True, "apt install --no-install-recommends skopeo"),
        (ROCKY, ["docker.io", "bubblewrap"], False, "dnf install docker-ce bubblewrap"),
        (ALMA, ["openssh-client", "openssh-sftp-server"], False, "dnf install openssh-clients openssh-server"),
        (ALMA, ["redis-server"], False, "dnf install redis"),
        (FEDORA, ["docker.io", "redis-server"], False, "dnf install moby-engine valkey"),
        (FEDORA, ["linux-image-cloud-amd64"], True, "dnf install --setopt=install_weak_deps=False kernel"),
        (OTHER, ["docker.io", "tmux"], False, "install docker.io, tmux"),
        (None, ["tmux"], False, "install tmux"),
    ],
)
def test_each_distribution_gets_its_command_and_names(
    tmp_path: Path, system: str | None, wanted: list[str], lean: bool, command: str
) -> None:
    release = tmp_path / "os-release"
    if system is not None:
        release.write_text(system)
    assert install_command(*wanted, lean=lean, os_release=release) == command


def test_doctor_says_dnf_on_rocky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "os-release").write_text(ROCKY)
    monkeypatch.setattr(packages, "_OS_RELEASE", tmp_path / "os-release")
    fixes = [check.fix for check in machine.programs(lambda name: None)]
    fixes.append(machine.bubblewrap(("no-such-program-anywhere",)).fix)
    assert fixes == [f"dnf install {name}" for name in ("iptables", "e2fsprogs", "tmux", "bubblewrap")]


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("apt", "apt install python3 python3-venv"),
        ("dnf", "dnf install python3.11"),
        ("", "install python3 python3-venv"),
    ],
)
def test_the_installation_names_the_command_of_this_machine(tmp_path: Path, manager: str, line: str) -> None:
    """The PATH has the tools of the script, an old Python, and one package manager."""
    for name in ("sh", "dirname", "flock"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    for name in filter(None, (manager, "python3")):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "bin" / "install"],
        env={"PATH": str(tmp_path), "INSTALL_VENV": f"var/none-{os.getpid()}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"Python 3.11 or newer is needed: {line}\n" in done.stderr
