"""Carries out a plan of faults, each in a thread of its own, and keeps the log of what was really inflicted."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.chaos.faults import Inflict
from tests.chaos.rig import Missed, Rig
from tests.chaos.schedule import Strike

logger = logging.getLogger("chaos")
_AT_ONCE = 24


@dataclass(slots=True)
class Nemesis:
    """``inflicted`` counts by kind; ``log`` has a line for each fault, with its offset from the beginning."""

    rig: Rig
    kinds: Mapping[str, Inflict]
    inflicted: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    _started_answer: float = 0.0

    def work(self, strikes: list[Strike], over: threading.Event) -> None:
        """Inflict everything; returns when the last fault is lifted."""
        self._started_answer = time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fault") as threads:
            for strike in strikes:
                if over.wait(max(0.0, self._started_answer + strike.at - time.monotonic())):
                    break
                threads.submit(self._inflict, strike)

    def _inflict(self, strike: Strike) -> None:
        started_at = time.monotonic() - self._started_answer
        try:
            struck = self.kinds[strike.kind](self.rig, strike.seconds, random.Random(strike.seed))
            self.inflicted[strike.kind] += 1
        except Exception as error:  # another fault may be in the way: the database is locked, the process is gone
            struck = f"missed: {error if isinstance(error, Missed) else repr(error)}".splitlines()[0][:160]
            self.missed[strike.kind] += 1
        lasted = time.monotonic() - self._started_answer - started_at
        line = f"+{started_at:6.1f} s  {lasted:5.1f} s  {strike.kind}  {struck}"
        self.log.append(line)
        logger.info(line)
