"""The folders of native kernels.

They are in the agent's data folder (``kernels``), unless kernels have users of their own and access their folders
directly: the data folder, or a folder above it (/root), may be closed to these users. Then a folder outside, owned by
root and open only for traversal, contains them; ``kernels.json`` in the data folder records it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tempfile
import threading
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.sandbox import Isolation
from backendai.agent.backends.shared.trees import ids_in
from backendai.agent.settings.credentials import write_private
from backendai.base.process.packages import install_command
from backendai.base.process.slowness import allowed

KERNEL_USERS = range(61184, 65520)  # systemd's range for dynamic users
BASES = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108  (the folder's name is random)
_NAME, _RECORD, _SEARCH_ONLY = "backendai-kernels-", "kernels.json", 0o711
_TRIAL_USER, _TRIAL_SECONDS = KERNEL_USERS[0], 10.0


class KernelPlaces:
    """The folders with one agent's kernels: ``new`` for new ones, and those of ``all`` for others."""

    def __init__(self, data: Path) -> None:
        self.inside = self.new = data / "kernels"

    @property
    def all(self) -> list[Path]:
        """All folders that may contain kernels."""
        return [self.inside]

    def for_new(self) -> Path:
        """Return the folder for new kernels. Raises StartFailed if there is none."""
        self.new.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.new

    def find(self, kernel_id: UUID) -> KernelFolder:
        """Return the kernel's folder; the one that it would get if there is none."""
        there = [path for place in self.all if (path := place / str(kernel_id)).is_dir()]
        return KernelFolder(there[0] if there else self.new / str(kernel_id))

    def folders(self) -> list[KernelFolder]:
        """Return the folders of all kernels, whether they run or not."""
        return [KernelFolder(place / str(kernel_id)) for place in self.all for kernel_id in ids_in(place)]


class NativePlaces(KernelPlaces):
    """``fault`` and ``fix``: why no kernel can start, and advice; empty if kernels can."""

    def __init__(self, data: Path, isolation: Isolation) -> None:
        super().__init__(data)
        self._data, self._isolation = data, isolation
        self.inside.mkdir(parents=True, exist_ok=True)
        self.inside.chmod(_SEARCH_ONLY)
        self._lock = threading.Lock()
        self.fault = self.fix = ""
        self._outside = self._recorded()  # newest last
        self.look()

    @property
    def all(self) -> list[Path]:
        return [self.inside, *self._outside]  # an earlier start may have chosen another one

    def look(self) -> None:
        """Choose the folder of new kernels, and check whether they can start. Runs a short process as root."""
        with self._lock:
            self.fault, self.fix = self._decide()

    def for_new(self) -> Path:
        if self.fault or not self.new.is_dir():
            self.look()
        if self.fault:
            raise StartFailed(self.fault)
        return self.new

    def tidy(self) -> None:
        """Remove the empty folders outside the data folder."""
        with self._lock:
            for folder in self._outside:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            left = [folder for folder in self._outside if folder.exists()]
            if left != self._outside:
                self._remember(left)
            if not self.new.is_dir():
                self.new = self.inside

    def _decide(self) -> tuple[str, str]:
        """Choose the folder for new kernels; returns fault and advice if none can start."""
        if self._isolation.root and (problem := self._problem_at(Path("/"))):
            fix = "Run the agent where root may change users (CAP_SETUID, CAP_SETGID), or as another user."
            return f"Kernels cannot run as users of their own: {problem}.", fix
        self.new = self.inside
        if not self._isolation.walks_alone:
            return "", ""
        told = []
        for folder in (self.inside, *reversed(self._outside)):
            problem = self._problem_at(folder)
            if not problem:
                self.new = folder
                return "", ""
            told.append(f"{folder} ({problem})")
        for base in BASES:
            problem = self._make(base)
            if not problem:
                return "", ""
            told.append(f"a folder in {base} ({problem})")
        fix = f"Install bubblewrap ({install_command('bubblewrap')}), or let users pass: chmod o+x {BASES[0]}"
        return f"The users of kernels cannot reach {', nor '.join(told)}.", fix

    def _make(self, base: Path) -> str:
        """Create and record a folder below ``base``; returns its problem, after removing it."""
        try:
            made = Path(tempfile.mkdtemp(prefix=_NAME, dir=base))
        except OSError as error:
            return error.strerror or str(error)
        made.chmod(_SEARCH_ONLY)
        if problem := self._problem_at(made):
            made.rmdir()
            return problem
        self._remember([*self._outside, made])
        self.new = made
        return ""

    def _remember(self, folders: list[Path]) -> None:
        self._outside = folders
        if folders:
            write_private(self._data / _RECORD, {"folders": [str(folder) for folder in folders]})
        else:
            (self._data / _RECORD).unlink(missing_ok=True)

    def _recorded(self) -> list[Path]:
        """Return the existing folders of earlier starts in which no other user can write."""
        try:
            told = json.loads((self._data / _RECORD).read_bytes())["folders"]
            return [folder for name in told if _is_ours(folder := Path(name))]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _problem_at(self, folder: Path) -> str:
        """Return why a kernel's user cannot access the folder; empty: it can. Tests it with a process."""
        trial = ["ls", "-d", "--", f"{folder}/."]
        try:
            done = subprocess.run(
                trial, user=_TRIAL_USER, group=_TRIAL_USER, extra_groups=[], cwd="/", capture_output=True, text=True,
                env={"PATH": os.defpath, "LC_ALL": "C"}, timeout=allowed(_TRIAL_SECONDS), check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if not done.returncode:
            return ""
        return done.stderr.strip().rpartition(": ")[2] or f"exit code {done.returncode}"


def _is_ours(folder: Path) -> bool:
    try:
        seen = folder.lstat()
    except OSError:
        return False
    is_private = seen.st_uid == os.geteuid() and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(seen.st_mode) and is_private and folder.name.startswith(_NAME)
