from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_goes_wrong_behind_the_scenes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test leaves an error in the log, or a connection that nobody has closed."""
    yield
    gc.collect()
    gc.freeze()  # what is left need not be looked through after the next one
    faults = [record.getMessage() for record in caplog.get_records("call") if record.levelname in ("ERROR", "CRITICAL")]
    assert faults == []
