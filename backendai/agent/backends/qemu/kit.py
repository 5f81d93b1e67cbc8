"""The kit as a read-only disk of virtual machines, for images without Python."""

from __future__ import annotations

import logging
import subprocess
import threading
from pathlib import Path

from backendai.agent.backends.qemu.tools import ToolMissing, Tools
from backendai.agent.backends.shared.kit import Kit

logger = logging.getLogger(__name__)

_OPTIONS = ("-comp", "lz4", "-all-root", "-noappend", "-no-progress", "-quiet")
_SECONDS = 120.0


class MachineKit:
    """The kit of one agent, below ``folder``."""

    def __init__(self, tools: Tools, folder: Path) -> None:
        self._tools, self._folder, self._making = tools, folder, threading.Lock()
        self._kit = Kit(folder / "files")

    def file(self) -> Path | None:
        """Return the kit's file system; creates it if needed (2 s). None after a failure, which is logged."""
        with self._making:
            if not self._kit.ensure():
                return None
            made = self._folder / f"{(self._kit.folder / 'current').readlink()}.squashfs"
            if not made.exists():
                try:
                    self._make(made)
                except (OSError, subprocess.SubprocessError, ToolMissing) as error:
                    logger.warning("the kit for images without Python cannot be made: %s", error)
                    return None
            return made

    def _make(self, made: Path) -> None:
        for left in self._folder.glob("*.squashfs"):  # an earlier version; running virtual machines keep it open
            left.unlink()
        draft = made.with_suffix(".draft")
        command = [self._tools.need("mksquashfs"), str(self._kit.folder), str(draft), *_OPTIONS]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS, env=self._tools.environ())
        draft.replace(made)
