"""Memory of a serving process: what stays is excluded from Python's cycle collector, what is freed goes back.

Two hundred thousand objects are modules, models and routes. A full collection checks all of them, which stopped every
tenth page for a tenth of a second or more. Templates, translations and statements come with the first pages; checking
these took every fourteenth page 30 to 40 milliseconds. A preview of the launch form creates some ten thousand objects.
Form and fields refer to each other, so half of these wait for the collector. With Python's own thresholds it ran a
dozen times during each preview, and over everything during every eighth: a tenth of the time. With a middle generation
that is collected seldom, one request in forty freed 80,000 objects in 110 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Any

from django.urls import get_resolver

# After so many full collections what is left stays, too: but for the few things of requests that are under way then,
# which is why it is done so seldom.
_AGAIN_AFTER = frozenset({2, 4, 8, 16, 32, 64})
# The number of new objects that starts a collection of the youngest, and after how many collections an older
# generation is collected. Cycles hold up to one megabyte meanwhile.
_THRESHOLDS = 10_000, 5, 80
# By default glibc raises the first up to 32 MiB once a large block was freed, and takes the next ones from the heap of
# the thread, which small neighbours then keep: a few answers of 24 MiB left the web server with 270 MB more. Threads
# share two heaps, as they hold the interpreter in turn: fifteen of 7 MB were 100 MB.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_ARENA_MAX = -3, -1, -8
_MALLOC_OPTIONS = ((_M_MMAP_THRESHOLD, 256 * 1024), (_M_TRIM_THRESHOLD, 2**20), (_M_ARENA_MAX, 2))


def give_back_what_is_freed() -> None:
    """Let the system have the memory of large blocks as soon as they are freed. Does nothing without glibc.

    Call it before the process starts threads.
    """
    with contextlib.suppress(OSError, AttributeError):
        for option, value in _MALLOC_OPTIONS:
            ctypes.CDLL(None).mallopt(option, value)


def free_what_is_left() -> None:
    """Free the objects of a large answer that has been made, and return their memory to the system.

    Serializer, view and answer refer to each other, and a few answers of 13 MB hold no more objects than one page: the
    collector let them wait for dozens.
    """
    gc.collect(1)  # a full one would count for what is set aside, and set aside other answers that are being made
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def set_aside_what_stays() -> None:
    """Load the routes with all views, collect garbage, and exclude the remaining objects from collections.

    Call it once, when the process is ready to serve.
    """
    for pattern in get_resolver().url_patterns:
        getattr(pattern, "url_patterns", None)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_SetAsideAgain())


class _SetAsideAgain:
    """A collector callback that also excludes the objects loaded by the first pages."""

    def __init__(self) -> None:
        self._full_ones = 0

    def __call__(self, phase: str, collection: dict[str, Any]) -> None:
        """Count full collections, and exclude the current objects after some of them."""
        if phase == "stop" and collection["generation"] == 2:
            self._full_ones += 1
            if self._full_ones in _AGAIN_AFTER:
                gc.freeze()
