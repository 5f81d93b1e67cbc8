"""Amounts that people type."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.domain.accounts.policies.amounts_field import AmountsField
from backendai.domain.accounts.policies.rules import clean_amounts


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ValidationError) as refused:
        AmountsField().to_python("cpu=x, mem=lots, gpus, disk=1, disk=2")
    told = " ".join(refused.value.messages)
    assert len(refused.value.messages) == 4
    for part in ("cpu: 'x' is not a number.", "mem: 'lots' is not a size", "“gpus”", "disk is listed twice"):
        assert part in told


def test_stored_amounts_name_the_slot_that_is_wrong() -> None:
    for amounts, words in (
        ({"cpu": "x"}, "cpu: 'x' is not a number."),
        ({"mem": "1e99"}, "mem: '1e99' is not a size"),
        ({"cuda.shares": "0.0001"}, "cuda.shares: 0.0001 has too many decimals"),
        ({"gpu!": 1}, "'gpu!' is not a resource name."),
        ({"memory": "64g"}, "memory takes no size such as 64g; only mem, shm and slots that end in .mem do."),
    ):
        with pytest.raises(UserError) as refused:
            clean_amounts({"mem": "1g"} | amounts, field="slots")
        assert refused.value.message.startswith(words)
        assert refused.value.field == "slots"


def test_right_amounts_are_exact() -> None:
    assert AmountsField().to_python("cpu=0.5, mem=1g") == {"cpu": "0.5", "mem": str(2**30)}
