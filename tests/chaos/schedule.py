"""Which fault strikes when: a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST_GAP, LONGEST_GAP = 2.0, 6.5  # seconds between the beginnings of two faults
_CALM = 2.0  # between the end of a fault and the next one of its kind


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault and for how long it lasts, in seconds; ``one_in``: it is in every so manieth deck only."""

    name: str
    shortest: float = 0.0
    longest: float = 0.0
    one_in: int = 1


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault to come. ``seed`` decides whatever else is chosen in it."""

    at: float
    kind: str
    seconds: float
    seed: int


def plan(seed: int, seconds: float, kinds: Sequence[Kind]) -> list[Strike]:
    """Return the faults of a run, all over after ``seconds``. They come in decks that hold every kind, in random order;
    they overlap, but never with one of the same kind."""
    chance = random.Random(seed)
    strikes: list[Strike] = []
    over: dict[str, float] = {}
    at, number = chance.uniform(SHORTEST_GAP, LONGEST_GAP), 0
    while at < seconds:
        deck = [kind for kind in kinds if number % kind.one_in == 0]
        chance.shuffle(deck)
        number += 1
        for kind in deck:
            lasts = chance.uniform(kind.shortest, kind.longest)
            own = chance.getrandbits(32)
            if at >= over.get(kind.name, 0.0) and at + lasts <= seconds:
                strikes.append(Strike(at, kind.name, lasts, own))
                over[kind.name] = at + lasts + _CALM
                at += chance.uniform(SHORTEST_GAP, LONGEST_GAP)
        if not strikes or at + min(kind.shortest for kind in kinds) > seconds:
            break
    return strikes
