"""Amounts and times that people type."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.domain.accounts.policies.amounts_field import AmountsField
from backendai.domain.accounts.policies.duration_field import TimeSpanField, short_duration
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


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("30m", 1800), ("2h 30m", 9000), ("2h30m", 9000), ("1.5 hours", 5400), ("7 days, 2 hours", 612000),
        ("1 week", 604800), ("90s", 90), ("0", 0), ("00:30:00", 1800), ("1 00:00:00", 86400), ("-5m", -300),
    ],
)  # fmt: skip
def test_a_time_is_read_as_people_write_it(typed: str, seconds: int) -> None:
    assert TimeSpanField().clean(typed) == timedelta(seconds=seconds)


@pytest.mark.parametrize("typed", ["5", "soon", "3 parsecs", "h", "999999999w", "1:2:3:4", "1h later"])
def test_a_time_without_a_meaning_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(ValidationError, match="such as 90s, 30m, 2h or 7d"):
        TimeSpanField().clean(typed)


@pytest.mark.parametrize("text", ["0", "30m", "2h 30m", "7d", "1d 1s", "-1m", "0.5s"])
def test_a_time_is_shown_as_it_would_be_typed(text: str) -> None:
    assert short_duration(TimeSpanField().clean(text)) == text
