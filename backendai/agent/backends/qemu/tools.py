"""Programs for virtual machines: the system's, or those that ``bin/qemu-bed`` has unpacked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.backends.base import BackendError

PACKAGES: Mapping[str, str] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "sqfstar": "squashfs-tools",
    "mke2fs": "e2fsprogs",
}
KERNEL = "linux-image-cloud-amd64"  # the package of the guests' kernel
_FOLDERS = ("usr/bin", "usr/sbin", "sbin", "bin", "usr/local/bin", "usr/lib/qemu")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")


class ToolMissing(BackendError):
    """A program for virtual machines is not installed."""

    code = "qemu-not-installed"


@dataclass(frozen=True, slots=True)
class QemuTools:
    """Programs below ``root``, else those of the system."""

    root: Path

    def find(self, name: str) -> Path | None:
        """Return the program's path; None if it is missing."""
        for root in (self.root, Path("/")):
            for folder in _FOLDERS:
                if os.access(path := root / folder / name, os.X_OK):
                    return path
        return None

    def need(self, name: str) -> str:
        """Return the program's path. Raises ToolMissing."""
        if path := self.find(name):
            return str(path)
        raise ToolMissing("{program} is not installed: install {package}.", program=name, package=_package(name))

    def missing(self) -> list[str]:
        """Return the packages of missing programs."""
        return [package for name, package in PACKAGES.items() if self.find(name) is None]

    def environ(self) -> dict[str, str]:
        """Return environment variables with the search path of libraries."""
        found = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        if self.root != Path("/"):
            found["LD_LIBRARY_PATH"] = ":".join(str(self.root / folder) for folder in _LIBRARIES)
        return found

    def firmware(self) -> list[str]:
        """Return the folders of QEMU's firmware."""
        return [str(self.root / folder) for folder in ("usr/share/qemu", "usr/share/seabios")]


def _package(name: str) -> str:
    return PACKAGES.get(name, name)
