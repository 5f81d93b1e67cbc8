"""Documents that people write: read by YAML 1.2, with places, and within limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import DEEPEST, check_extent, read_document, written
from tests.effort import examples


def test_scalars_follow_yaml_1_2_and_what_only_looks_like_a_number_stays_text() -> None:
    text = "a: no\nb: 12:30\nc: 0755\nd: 1e3\ne: [1, x, -2.5]\nf: {g: null}\nh: ~\ni: 'yes'\nj: 1_000\nk: .inf\nl: True"
    assert read_document(text).value == {
        "a": "no",
        "b": "12:30",
        "c": "0755",
        "d": 1000.0,
        "e": [1, "x", -2.5],
        "f": {"g": None},
        "h": None,
        "i": "yes",
        "j": "1_000",
        "k": ".inf",
        "l": True,
    }


def test_json_is_read_as_json() -> None:
    assert read_document('{\n\t"a": "\\ud83d\\ude00 \\/",\t"b": [1.5, true, null]}').value == {
        "a": "😀 /",
        "b": [1.5, True, None],
    }


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("image: python\nimage: other", 2, 1, "'image' is written twice"),
        ('{"a": 1,\n "b": {"c": 1, "c": 2}}', 2, 16, "'c' is written twice"),
        ("a: &all [1]\nb: *all", 1, 4, "anchors"),
        ("a: !!python/object:os.system x", 1, 4, "tags"),
        ("a: 1\n---\nb: 2", 2, 1, "second document"),
        ("a:\n  b: c: d", 2, 7, "neither YAML nor JSON"),
        ("- a", 1, 1, "keys with their values"),
        ("[a]: 1", 1, 1, "key is a text"),
        ("a: " + "[" * (DEEPEST + 5), 1, DEEPEST + 3, "levels"),
        ("a: 1e999", 1, 4, "too large"),
        ("a: " + "9" * 30, 1, 4, "digits"),
        ("a: [" + "1, " * 6000 + "]", 1, 14996, "values"),
        ('a: "\\u0000"', 1, 4, "U+0000"),
        ("ab: \x01", 1, 5, "control characters"),
        ("a: \ud800", 1, 4, "half of a letter"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        read_document(text)
    assert (refusal.value.details["line"], refusal.value.details["column"]) == (line, column)
    assert said in str(refusal.value) and str(refusal.value).startswith(f"Line {line}, column {column}: ")


@pytest.mark.parametrize("text", ["", "# nothing\n", "a: " + "x" * 65_536])
def test_what_is_empty_or_too_large_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        read_document(text)


def test_a_refusal_gets_the_place_of_its_field() -> None:
    found = read_document("image: python\nroles:\n  worker:\n    imgae: x\nmounts:\n- folder: a\n- flder: b\n")

    def place(field: str) -> Any:
        error = found.placed(UserError("Wrong.", field=field, code="wrong"))
        return error.details.get("line"), error.details.get("column"), error.field, error.code

    assert place("roles.worker.imgae") == (4, 5, "roles.worker.imgae", "wrong")
    assert place("mounts.flder") == (7, 3, "mounts.flder", "wrong"), "a list's index may be left out"
    assert place("roles.worker.count") == (3, 3, "roles.worker.count", "wrong"), "of what is missing the part"
    assert place("name") == (None, None, "name", "wrong")


def test_json_bodies_have_the_same_limits() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    for value in (deep, {str(number): 1 for number in range(6000)}):
        with pytest.raises(UserError):
            check_extent(value)
    check_extent({"a": [1, {"b": None}]})


_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")) | st.just("\n"), max_size=20)
_ODD = st.sampled_from(
    ["1e3", "0755", "no", "12:30", "null", "~", "-", "1.", "+.5e-3", "true", "0x1f", "=", "<<", " a"]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS
    | _ODD,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS | _ODD, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(_TEXTS | _ODD, _VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read_again(document: dict[str, Any]) -> None:
    assert read_document(written(document)).value == document
