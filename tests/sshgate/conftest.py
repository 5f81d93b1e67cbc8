"""What all tests of the SSH gate have in common."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.sshgate import visit


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions whose use was noted."""
    noted: list[Any] = []
    monkeypatch.setattr(visit.meter, "touch", noted.append)
    return noted
