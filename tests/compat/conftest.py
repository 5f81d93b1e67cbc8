"""The room is on, as in a deployment that has switched it on."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def room(settings: Any) -> None:
    settings.COMPAT = True
