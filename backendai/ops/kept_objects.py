"""What a serving process keeps until its end, out of sight of Python's collector of cycles.

Two hundred thousand objects are modules, models and routes. To look through all of them, as a full collection does,
stopped every tenth page for a tenth of a second or more.
"""

from __future__ import annotations

import gc

from django.urls import get_resolver


def set_aside_what_stays() -> None:
    """Load the routes with all their views, throw away what is not needed any more, and let collections pass over the
    rest from now on. Called once, when the process is ready to serve."""
    for pattern in get_resolver().url_patterns:
        getattr(pattern, "url_patterns", None)
    gc.collect()
    gc.freeze()
