"""The limits of items, in bytes as they are written down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backendai.agent.guest.home.items import LARGEST_MESSAGE, bounded, encoded

HANGUL, CONTROL, HALF = "\uac00", "\x01", "\ud800"


@pytest.mark.parametrize("letter", ["x", HANGUL, CONTROL, HALF, "\U0001f600"])
@pytest.mark.parametrize(
    "item",
    [
        {"type": "stdout", "text": 9_000_000},
        {"type": "error", "name": 2_000_000, "value": 9_000_000, "traceback": 9_000_000},
        {"type": "media", "mime": "text/plain", "data": 9_000_000},
        {"type": "media", "mime": "image/png", "data": 7_900_000, "text": 9_000_000},
        {"type": "html", "html": 9_000_000, "text": 9_000_000, "display": 9_000_000},
        {"type": "log", "text": 1_000_000},
    ],
)
def test_no_item_is_larger_than_a_message(letter: str, item: dict[str, Any]) -> None:
    made = {name: letter * value if isinstance(value, int) else value for name, value in item.items()}
    for one in bounded(made):
        line = encoded(one)
        assert len(line) < LARGEST_MESSAGE - 1024
        assert json.loads(line)["type"] in ("stdout", "error", "media", "html", "gap", "log")


def test_text_stays_whole_in_pieces() -> None:
    text = "".join(chr(0xAC00 + number % 1000) for number in range(100_000))
    pieces = bounded({"type": "stdout", "text": text})
    assert "".join(piece["text"] for piece in pieces) == text
    assert all(len(encoded(piece)) <= 2**17 for piece in pieces)


def test_what_is_cut_is_told_with_its_size() -> None:
    [shown, gap] = bounded({"type": "media", "mime": "text/plain", "data": "x" * (2**20 + 5)})
    assert (len(shown["data"]), gap) == (2**20, {"type": "gap", "bytes": 5, "reason": "too-large"})
    [gap, error] = bounded({"type": "error", "name": "E", "value": "v", "traceback": "a" + "z" * 2**20})
    assert (gap["bytes"], error["traceback"]) == (1, "z" * 2**20)
    [told] = bounded({"type": "html", "html": "x" * (9 * 2**20)})
    assert told == {"type": "log", "text": "Output of 9 MiB (html) was left out: 8 MiB are kept at most."}


@pytest.mark.parametrize("odd", [{}, {"type": 5}, {"type": {}}, {"type": "odd", "text": "x"}, {"text": "x"}])
def test_what_is_no_item_is_left_out(odd: dict[str, Any]) -> None:
    assert bounded(odd) == []


def test_values_that_are_no_texts_are_left_out() -> None:
    assert bounded({"type": "html", "html": [1], "text": {}, "more": "x"}) == [{"type": "html", "html": ""}]
    assert bounded({"type": "gap", "bytes": "7"}) == [{"type": "gap", "bytes": 7, "reason": "too-large"}]
