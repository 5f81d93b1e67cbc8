"""What the build commands share: their log, and an end that cleans up."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO


def clean_up_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does: through its ``finally`` clauses."""
    signal.signal(signal.SIGTERM, _interrupt)


@contextmanager
def open_log(name: str | None) -> Iterator[TextIO]:
    """Open the file to append to it; without a name, the log is standard error."""
    if name is None:
        yield sys.stderr
        return
    with Path(name).open("a", encoding="utf-8") as log:
        yield log


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
