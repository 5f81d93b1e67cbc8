"""Amounts as people write them into documents."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.core.slots import parse_amount, written_amount


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
