"""Machines as a test says that they are, whatever runs beside it."""

from __future__ import annotations

import pytest

from backendai.base.process import slowness
from backendai.base.process.slowness import Measure

QUIET = Measure(load=0.0, cores=2, waiting=0.0, pace=1.0)
BUSY = QUIET._replace(load=12.0)  # six times slower


def make_machine(monkeypatch: pytest.MonkeyPatch, found: Measure = QUIET) -> None:
    """Let this machine measure itself so."""
    monkeypatch.setattr(slowness, "measure", lambda: found)
