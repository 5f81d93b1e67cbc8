"""The sequences: one per file, as ``SEQUENCE``. A new file adds a choice without other changes."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from backendai.scheduler.sequence import Sequence

_FOUND: tuple[Sequence, ...] = tuple(
    import_module(f"{__name__}.{module.name}").SEQUENCE for module in iter_modules(__path__)
)

SEQUENCES: dict[str, Sequence] = {found.name: found for found in sorted(_FOUND, key=lambda found: found.name)}
