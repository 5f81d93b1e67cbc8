"""What the build tells its caller: a share done, a sentence, and at the end ``done`` or a failure with its fix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO


class Failure(Exception):
    """The build cannot go on. ``code`` is stable, ``sentence`` says what happened and ``fix`` what to do."""

    def __init__(self, code: str, sentence: str, fix: str) -> None:
        super().__init__(sentence)
        self.code, self.sentence, self.fix = code, sentence, fix


@dataclass(frozen=True)
class Phase:
    """A part of the work. ``weight`` is its usual share of the time, ``lines`` how much output it usually makes."""

    name: str
    weight: float
    lines: int


class Progress:
    """Writes one line per change: for programs (``machine``) or for people. The share never goes back."""

    def __init__(self, out: TextIO, *, machine: bool) -> None:
        self._out, self._machine = out, machine
        self._starts: dict[str, tuple[float, float, int]] = {}
        self._phase = ("", 0.0, 0.0, 1)
        self._seen = 0
        self._share, self._sentence, self._shown = 0.0, "", ""

    def plan(self, phases: Sequence[Phase]) -> None:
        """Set what will be done, in order; shares are divided by weight."""
        total = sum(phase.weight for phase in phases) or 1.0
        start = 0.0
        for phase in phases:
            self._starts[phase.name] = (start, phase.weight / total, phase.lines)
            start += phase.weight / total

    def begin(self, name: str, sentence: str) -> None:
        """Start a planned phase; what was left of the ones before counts as done."""
        start, width, lines = self._starts.get(name, (self._share, 0.0, 1))
        self._phase = (name, start, width, lines)
        self._seen = 0
        self._share = max(self._share, start)
        self.say(f"{name}: {sentence}")

    def say(self, sentence: str) -> None:
        """Report a new sentence; saying the same one again writes nothing."""
        self._sentence = sentence
        self._write_change()

    def count_line(self) -> None:
        """Count one line of output of the phase: the measure of how far it is."""
        self._seen += 1
        _, start, width, lines = self._phase
        done = self._seen / lines
        if done > 0.9:  # a phase that writes more than usual slows down instead of standing still
            done = 1 - 0.1 * math.exp(9 - 10 * done)
        self._share = max(self._share, start + width * done)
        self._write_change()

    def reach(self, done: float) -> None:
        """Report how much of the phase is done, from 0 to 1, where its output does not tell."""
        _, start, width, _ = self._phase
        self._share = max(self._share, start + width * min(done, 1.0))
        self._write_change()

    def step(self, number: int, total: int, words: str) -> None:
        """Report a numbered step of the phase."""
        self.say(f"{self._phase[0]}: {words} (step {number} of {total})")

    def done(self, sentence: str) -> None:
        """Report success: the last line."""
        if self._machine:
            self._share = 1.0
            self.say(sentence)
            self._write("done")
        else:
            self._write(sentence)

    def failed(self, failure: Failure) -> None:
        """Report failure: the last line."""
        sentence, fix = _on_one_line(failure.sentence), _on_one_line(failure.fix)
        self._write(f"failed {failure.code} {sentence} | {fix}" if self._machine else f"{sentence}\n{fix}")

    def _write_change(self) -> None:
        share = f"{self._share:.2f}"
        line = f"progress {share} {self._sentence}" if self._machine else self._sentence
        if line and line != self._shown:
            self._shown = line
            self._write(line)

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


def _on_one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
