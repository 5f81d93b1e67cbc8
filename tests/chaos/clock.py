"""A wall clock that can be stepped for the processes of one platform alone, by a library preloaded into them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")


class MovableClock:
    """``environment`` is what the processes need; it is empty, and nothing can be stepped, without a C compiler."""

    def __init__(self, folder: Path) -> None:
        self._file, library = folder / "clock", folder / "clock.so"
        self._file.write_bytes(struct.pack("l", 0))
        self.environment: dict[str, str] = {}
        if compiler := shutil.which("cc") or shutil.which("gcc"):
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
            subprocess.run(command, check=True, timeout=60)
            self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK_FILE": str(self._file)}

    @property
    def can_step(self) -> bool:
        """Whether the processes see the steps."""
        return bool(self.environment)

    def set_ahead(self, seconds: int) -> None:
        """Set the clock so many seconds ahead of the machine's, or behind it."""
        with self._file.open("r+b") as file:  # in place: the processes have mapped this very file
            file.write(struct.pack("l", seconds))
