"""The selections: one per file, as ``SELECTION``. A new file adds a choice without other changes."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from backendai.scheduler.selection import Selection

_FOUND: tuple[Selection, ...] = tuple(
    import_module(f"{__name__}.{module.name}").SELECTION for module in iter_modules(__path__)
)

SELECTIONS: dict[str, Selection] = {found.name: found for found in sorted(_FOUND, key=lambda found: found.name)}
