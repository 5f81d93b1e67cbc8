"""Callers of REST, where a group and an image are."""

from __future__ import annotations

import pytest

from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_group, make_image


@pytest.fixture
def alice(cast: Cast) -> Caller:
    make_group()
    make_image()
    return Caller(cast.alice)


@pytest.fixture
def dana(cast: Cast) -> Caller:
    make_group()
    make_image()
    return Caller(cast.dana)
