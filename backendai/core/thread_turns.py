"""How long a thread may compute while others wait for the interpreter."""

from __future__ import annotations

import sys

_SECONDS = 0.0005


def shorten_turns() -> None:
    """Let an event loop have the interpreter back soon. With Python's 5 ms an event waits for so long, and for longer
    where several threads compute: for each query of a report, each sync of an agent."""
    sys.setswitchinterval(_SECONDS)
