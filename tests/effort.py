"""How many random examples a test tries: all of them with ``bin/test --all``, a quarter of them else."""

from __future__ import annotations

import os

LONG = os.environ.get("BACKENDAI_TEST_LONG") == "1"


def examples(number: int) -> int:
    """Return how many of this number of examples are tried now."""
    return number if LONG else max(10, number // 4)
