"""The signed manifests of this agent's kernels, one small file each. A portal can adopt a session from them."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from pathlib import Path
from uuid import UUID

logger = logging.getLogger(__name__)


class Manifests:
    """The manifest files in ``folder``. Thread-safe. A failed write is logged and does not prevent the kernel's
    start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, kernel_id: UUID, generation: int, manifest: str) -> None:
        """Write the manifest of a kernel that is about to start; replaces an earlier generation's."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self._folder / f"{kernel_id}.new"
            draft.write_text(json.dumps({"generation": generation, "manifest": manifest}))
            draft.replace(self._folder / f"{kernel_id}.json")
        except OSError as error:
            logger.warning("kernel %s: its manifest cannot be written: %s", kernel_id, error)

    def read(self, kernel_id: UUID, generation: int) -> str:
        """Return the manifest of this generation; empty if there is none."""
        try:
            kept = json.loads((self._folder / f"{kernel_id}.json").read_text())
            return str(kept["manifest"]) if kept["generation"] == generation else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def sweep(self, live: Collection[UUID]) -> None:
        """Delete the manifests of kernels that are not in ``live``."""
        names = {f"{kernel_id}.json" for kernel_id in live}
        try:
            for path in self._folder.iterdir():
                if path.name not in names:
                    path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("old manifests cannot be deleted: %s", error)
