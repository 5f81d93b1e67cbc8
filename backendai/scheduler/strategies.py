"""The strategies that a resource group can choose, by name, with labels for forms."""

from __future__ import annotations

from dataclasses import dataclass

from backendai.scheduler.rank import SELECTIONS, selection_named
from backendai.scheduler.sequence import Sequence
from backendai.scheduler.sequences import SEQUENCES


@dataclass(frozen=True, slots=True)
class StrategyView:
    """A strategy for forms and pages; ``level`` is ``sequence`` or ``selection``."""

    level: str
    name: str
    label: str


def sequence_named(name: str) -> Sequence:
    """Return the sequence with this name. Raises ValueError if none has it."""
    try:
        return SEQUENCES[name]
    except KeyError:
        raise ValueError(f"no sequence is called {name!r}: use one of {', '.join(SEQUENCES)}") from None


def describe_strategies() -> tuple[StrategyView, ...]:
    """Return every sequence and every selection for forms: sequences first, each kind sorted by name."""
    sequences = [StrategyView("sequence", each.name, each.label) for each in SEQUENCES.values()]
    selections = [StrategyView("selection", each.name, each.label) for each in SELECTIONS.values()]
    return (*sequences, *selections)


def check_rules(sequence: str, selection: str) -> None:
    """Raise ValueError for an unknown strategy."""
    sequence_named(sequence)
    selection_named(selection)
