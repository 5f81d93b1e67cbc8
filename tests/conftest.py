"""Fixtures for all tests."""

from __future__ import annotations

import pytest

from tests.cast import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    """Alice, Bob, Charlie and Dana."""
    return make_cast()
