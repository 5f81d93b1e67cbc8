"""Where the folders of native kernels are.

They are in the agent's data folder (``kernels``) unless kernels run as users of their own and walk there by themselves:
the data folder is closed to them, and so may be a folder above it (/root). Then a folder of root's outside of it holds
them, open for passing through only; ``kernels.json`` in the data folder remembers which.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.process_sandbox import Isolation
from backendai.agent.credentials import write_private

KERNEL_USERS = range(61184, 65520)  # the range that systemd keeps for users without a name
BASES = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108  (the folder in it has a name that nobody can guess)
_NAME, _RECORD, _SEARCH_ONLY = "backendai-kernels-", "kernels.json", 0o711
_TRIAL_USER, _TRIAL_SECONDS = KERNEL_USERS[0], 10.0


class Places:
    """The folders that hold kernels of one agent. ``fault`` and ``fix`` say why no kernel can start, and what to do;
    empty when kernels can."""

    def __init__(self, data: Path, isolation: Isolation) -> None:
        self._data, self._isolation = data, isolation
        self.inside = data / "kernels"
        self.inside.mkdir(parents=True, exist_ok=True)
        self.inside.chmod(_SEARCH_ONLY)
        self._lock = threading.Lock()
        self.fault = self.fix = ""
        self._outside = self._recorded()  # the newest one last
        self.new = self.inside
        self.look()

    @property
    def all(self) -> list[Path]:
        """The folders in which kernels may be: an earlier start may have chosen otherwise."""
        return [self.inside, *self._outside]

    def look(self) -> None:
        """Decide where new kernels go, and whether they can start at all. Costs a short process as root."""
        with self._lock:
            self.fault, self.fix = self._decide()

    def for_new(self) -> Path:
        """Return the folder for a new kernel. Raises StartFailed when there is none."""
        if self.fault or not self.new.is_dir():
            self.look()
        if self.fault:
            raise StartFailed(self.fault)
        return self.new

    def find(self, kernel_id: UUID) -> Path:
        """Return the kernel's folder; where it would be when there is none."""
        there = [path for place in self.all if (path := place / str(kernel_id)).is_dir()]
        return there[0] if there else self.new / str(kernel_id)

    def folders(self) -> Iterator[Path]:
        """Yield whatever is in the folders."""
        for place in self.all:
            with contextlib.suppress(FileNotFoundError):
                yield from list(place.iterdir())

    def tidy(self) -> None:
        """Remove the folders outside of the data folder that are empty."""
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
        """Choose the folder for new kernels; returns why none can start and what to do about that."""
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
        fix = f"Install bubblewrap (apt install bubblewrap), or let users pass: chmod o+x {BASES[0]}"
        return f"The users of kernels cannot reach {', nor '.join(told)}.", fix

    def _make(self, base: Path) -> str:
        """Make the folder and remember it; returns what is wrong with it, after removing it."""
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
        """Return the folders of earlier starts that are still there and in which nobody else can write."""
        try:
            told = json.loads((self._data / _RECORD).read_bytes())["folders"]
            return [folder for name in told if _is_ours(folder := Path(name))]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _problem_at(self, folder: Path) -> str:
        """Return why a user of kernels cannot be in the folder; empty when they can. It is really tried."""
        trial = ["ls", "-d", "--", f"{folder}/."]
        try:
            done = subprocess.run(
                trial, user=_TRIAL_USER, group=_TRIAL_USER, extra_groups=[], cwd="/", capture_output=True, text=True,
                env={"PATH": os.defpath, "LC_ALL": "C"}, timeout=_TRIAL_SECONDS, check=False,
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
