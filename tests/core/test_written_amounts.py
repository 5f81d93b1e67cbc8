"""Amounts as people write them into documents."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots, parse_amount, parse_size, written_amount


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("cpu", "2", 2),
        ("cpu", "0.5", 0.5),
        ("mem", str(2**30), "1g"),
        ("mem", str(3 * 2**29), "1536m"),
        ("mem", "1000", "1000"),
        ("mem", "0", "0"),
        ("cuda.shares", "1.25", 1.25),
        ("cpu", "${{ params.cores }}", "${{ params.cores }}"),
    ],
)
def test_an_amount_is_written_briefly_and_stays_the_same(name: str, value: str, written: Any) -> None:
    assert written_amount(name, value) == written
    if not value.startswith("$"):
        assert parse_amount(name, written, field=name) == parse_amount(name, value, field=name)


@pytest.mark.parametrize("value", ["64", 64, "0.5", " 512 ", str(2**20 - 1)])
def test_a_plain_number_of_a_few_bytes_wants_its_unit_where_a_person_writes_it(value: Any) -> None:
    for read in (parse_size, lambda one, **how: Slots.parse({"cpu": 1, "mem": one}, **how)):
        with pytest.raises(UserError) as refused:
            read(value, field="mem", typed=True)
        assert refused.value.code == "unit-missing"
        read(value, field="mem")  # what is stored, or what an agent reports
    number = str(value).strip()
    assert str(refused.value.message) == f"{number} without a unit means bytes. Write {number}g or {number}m."


@pytest.mark.parametrize("value", ["0", "64b", "64k", "16m", str(2**20), "1g"])
def test_a_size_that_says_its_unit_or_is_large_enough_is_taken(value: str) -> None:
    assert parse_size(value, field="mem", typed=True) == parse_size(value, field="mem")
    assert parse_amount("cpu", "64", field="cpu", typed=True) == 64_000
