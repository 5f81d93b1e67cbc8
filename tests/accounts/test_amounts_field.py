"""Amounts that people type."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from backendai.accounts.amounts_field import AmountsField


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ValidationError) as refused:
        AmountsField().to_python("cpu=x, mem=lots, gpus, disk=1, disk=2")
    told = " ".join(refused.value.messages)
    assert len(refused.value.messages) == 4
    for part in ("'x'", "'lots'", "'gpus'", "disk stands there twice"):
        assert part in told


def test_right_amounts_are_exact() -> None:
    assert AmountsField().to_python("cpu=0.5, mem=1g") == {"cpu": "0.5", "mem": str(2**30)}
