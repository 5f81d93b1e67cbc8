"""Linux functions about a process's parent, its orphans, and its name in ``ps``."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backendai.base.process.slowness import allowed

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46  # in /proc/self/stat, counted from the field after the name
_ADOPTED_WITHIN = 10.0


def die_with(parent: int) -> None:
    """Make Linux kill this process when its parent thread ends; exits at once if that has happened."""
    # KILL: everything here survives a crash by design, and a polite end could wait for a broker that is gone too.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wait_for_adoption(parent: int) -> None:
    """Wait until ``parent`` is the parent of this process, after its own parent has ended."""
    deadline = time.monotonic() + allowed(_ADOPTED_WITHIN)
    while os.getppid() != parent and time.monotonic() < deadline:
        time.sleep(0.001)


@contextmanager
def adopting() -> Iterator[None]:
    """Become the parent of all orphans below this process, within this block."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def show_as(words: Sequence[str]) -> None:
    """Show this command in ``ps`` instead of the original one, as far as there is space."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
    text = os.fsencode(" ".join(words))[: end - begin - 2]
    # A last byte that is not zero says that this is one text, which ends at the first zero.
    ctypes.memmove(begin, text.ljust(end - begin - 1, b"\0") + b".", end - begin)
