"""Names the programs that this machine lacks for better isolation of sessions, with the command that installs them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from backendai.ops.doctor.check import Check
from backendai.ops.doctor.machine import bubblewrap
from backendai.ops.run.engine import engine_is_expected

_OS_RELEASE = Path("/etc/os-release")
_WITH_APT = {"debian", "ubuntu"}


def missing(
    no_engine: tuple[str, ...], *, sandbox: Callable[[], Check] = bubblewrap, os_release: Path = _OS_RELEASE
) -> str:
    """Return a line for people whose sessions are native processes; empty if nothing is missing.

    ``no_engine``: why no Docker Engine is used, and the remedy; empty if somebody chose native processes.
    """
    wanted, packages, told = [], [], []
    if no_engine and engine_is_expected():
        told.append(f"Docker: {no_engine[0]}. {no_engine[1]}")
    elif no_engine:
        wanted.append("Docker (containers and images)")
        packages.append("docker.io")
    check = sandbox()
    if check.level != "ok" and shutil.which("bwrap"):
        told.append(f"bubblewrap {check.message}. {check.fix}")
    elif check.level != "ok":
        wanted.append("bubblewrap (a sandbox)")
        packages.append("bubblewrap")
    if wanted:
        told.insert(0, f"{' and '.join(wanted)}: {_how_to_install(packages, os_release)}")
    return "; ".join(told)


def _how_to_install(packages: list[str], os_release: Path) -> str:
    if not _distributions(os_release) & _WITH_APT:
        return "install them" if len(packages) > 1 else "install it"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt install {' '.join(packages)}"


def _distributions(os_release: Path) -> set[str]:
    """Return the ids of this Linux distribution and of its parents."""
    try:
        lines = os_release.read_text().splitlines()
    except OSError:
        return set()
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    return set(f"{told.get('ID', '')} {told.get('ID_LIKE', '')}".replace('"', "").split())
