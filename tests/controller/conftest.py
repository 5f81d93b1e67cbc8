"""Fixtures for the loops."""

from __future__ import annotations

import pytest

from backendai.portal.loops import folders


@pytest.fixture(autouse=True)
def no_pass_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that outlives its test would write into the database of the next one."""
    monkeypatch.setattr(folders, "begin", lambda now: None)
