"""The strategies that a resource group can choose, by name, with labels for forms and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backendai.scheduler.options import Option, check_options
from backendai.scheduler.rank import SELECTIONS, selection_named
from backendai.scheduler.sequence import Sequence
from backendai.scheduler.sequences import SEQUENCES


@dataclass(frozen=True, slots=True)
class StrategyView:
    """A strategy for forms and pages; ``level`` is ``sequence`` or ``selection``."""

    level: str
    name: str
    label: str
    options: tuple[Option, ...]


def sequence_named(name: str) -> Sequence:
    """Return the sequence with this name. Raises ValueError if none has it."""
    try:
        return SEQUENCES[name]
    except KeyError:
        raise ValueError(f"no sequence is called {name!r}: use one of {', '.join(SEQUENCES)}") from None


def describe_strategies() -> tuple[StrategyView, ...]:
    """Return every sequence and every selection for forms: sequences first, each kind sorted by name."""
    sequences = [StrategyView("sequence", each.name, each.label, each.options) for each in SEQUENCES.values()]
    selections = [StrategyView("selection", each.name, each.label, each.options) for each in SELECTIONS.values()]
    return (*sequences, *selections)


def check_rules(sequence: str, selection: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return all options of both strategies, with given or default values. Raises ValueError for an unknown strategy,
    an unknown option, or a value out of range."""
    return check_options((*sequence_named(sequence).options, *selection_named(selection).options), options)
