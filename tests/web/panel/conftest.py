"""Who administers the site."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from backendai.domain.accounts.models import User
from tests.cast import Cast


@pytest.fixture
def dana(cast: Cast, browse: Callable[[User], Client]) -> Client:
    return browse(cast.dana)
