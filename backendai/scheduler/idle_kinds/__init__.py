"""The kinds of idle checkers: one per file, as ``KIND``. A new file adds a kind without other changes."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from backendai.scheduler.find_idle import IdleKind

IDLE_KINDS: dict[str, IdleKind] = {
    kind.name: kind for kind in (import_module(f"{__name__}.{module.name}").KIND for module in iter_modules(__path__))
}


def kind_choices() -> list[tuple[str, str]]:
    """Return the name and label of each kind, for fields of models, forms and REST."""
    return [(kind.name, kind.label) for kind in IDLE_KINDS.values()]
