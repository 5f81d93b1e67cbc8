"""How long a thread may compute while others wait for the interpreter."""

from __future__ import annotations

import sys

_SECONDS = 0.0005


def shorten_turns() -> None:
    """Let an event loop have the interpreter back soon.

    Python's default of 5 ms delays each event by that time, or by a multiple where several threads compute.
    """
    sys.setswitchinterval(_SECONDS)
