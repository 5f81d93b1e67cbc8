"""Python's collector of cycles, at rest while a pass works.

A pass makes hundreds of thousands of objects and keeps most of them to its end, none in a cycle. Looking through them
again and again cost a third of its time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting = 0


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Let the collector of this process rest until the last of those who asked for it has ended."""
    global _resting
    with _lock:
        _resting += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting:
                gc.enable()
