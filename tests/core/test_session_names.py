"""The one rule for names of sessions, and what it says to whom."""

from __future__ import annotations

import pytest

from backendai.base.core.errors import UserError
from backendai.base.core.names import check_session_name


@pytest.mark.parametrize("name", ["abcd", "9-_.9", "a" * 64, "A.b-c_1"])
def test_it_takes_4_to_64_plain_characters(name: str) -> None:
    assert check_session_name(name) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "at least 4 characters (0 given)"),
        ("abc", "at least 4 characters (3 given)"),
        ("x" * 65, "at most 64 characters (65 given)"),
        ("-abc", "Begin with a letter or a digit."),
        ("_abc", "Begin with a letter or a digit."),
        ("a b c d", "A space is not allowed"),
        ("näme", "'ä' is not allowed"),
        ("name\n", "is not allowed"),
        ("abcd-", "End with a letter or a digit."),
    ],
)
def test_it_says_which_part_of_it_a_name_breaks(name: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        check_session_name(name)
    assert words in refused.value.message
    assert (refused.value.field, refused.value.code) == ("name", "invalid-name")
