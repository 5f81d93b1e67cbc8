"""Sentences of rooms that know no translation are recognised, with whatever was filled in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from django.test import Client
from django.utils.safestring import mark_safe
from django.utils.translation import override

from backendai.core.errors import UserError
from backendai.core.names import check_catalogue_name, check_session_name
from backendai.ops.texts.sentences import sentences_of_module
from backendai.texts.languages import language_asked_for
from backendai.texts.sentences import in_words
from tests.cast import Cast


@pytest.fixture(autouse=True)
def in_korean() -> Iterator[None]:
    with override("ko"):
        yield


def test_a_refusal_keeps_its_numbers_and_names() -> None:
    with pytest.raises(UserError) as refused:
        check_session_name("ab")
    said = in_words(refused.value.message)
    assert said != refused.value.message and "2" in said and "4" in said
    with pytest.raises(UserError) as refused:
        check_catalogue_name("<b>")
    assert "'<'" in in_words(refused.value.message), "it is text: whoever shows it escapes it"


def test_a_reason_of_waiting_is_told_with_all_that_is_in_it() -> None:
    reason = (
        "No agent has room for 4 CPU cores, 8 GiB of memory now: gpu-01 comes closest (4 CPU cores asked for, "
        "2 available; 8 GiB of memory asked for, 3 GiB available)."
    )
    said = in_words(reason)
    for part in (
        "4 CPU 코어, 8 GiB 메모리",
        "gpu-01",
        "4 CPU 코어 요청, 2 사용 가능; 8 GiB 메모리 요청, 3 GiB 사용 가능",
    ):
        assert part in said
    two = in_words("The scheduler fails on this session; its log has the error. Turn 2 of 3 in the order fifo.")
    assert "fifo" in two and "scheduler" not in two and "Turn" not in two, "sentence by sentence"
    assert in_words("fifo: first in, first out") == "fifo: 선입선출"


def test_a_reason_with_a_second_half_has_no_english_left() -> None:
    asks = in_words("That session asks for 8 CPU cores and starts at 2025-06-02 10:00:00 UTC at the latest.")
    assert "8 CPU 코어" in asks and "2025-06-02 10:00:00 UTC" in asks
    several = in_words("2 agents cannot start sessions, such as gpu-01: Its disk is full.")
    assert "gpu-01" in several and "Its disk is full." in several
    for english in (" and ", "starts", "latest", "agents", "such as"):
        assert english not in asks + several


def test_what_is_not_known_stays_as_it_is_and_nothing_changes_in_english() -> None:
    for text in ("An entirely new sentence about 3 things.", "train-baseline", "", "user of nothing: else"):
        assert in_words(text) == text
    safe = mark_safe("<b>Choose another name.</b>")
    assert in_words(safe) is safe, "markup is never taken apart"
    with override("en"):
        assert in_words("Begin with a letter or a digit.") == "Begin with a letter or a digit."


def test_it_finds_the_sentences_of_a_module() -> None:
    code = (
        '"""Doc string of it."""\n'
        "class Kind(TextChoices):\n    A = 'a', 'word'\n"
        "def f(n):\n    '''Return a thing.'''\n    logger.info('not for people to read')\n"
        '    raise UserError(f\'At most {n.most} of {n.all} things{"s" if n else ""}.\')\n'
        "    raise ValueError('not for people either')\n"
    )
    assert [entry.key.text for entry in sentences_of_module(ast.parse(code))] == [
        "word",
        "At most {most} of {all} things{plural}.",
    ]


@pytest.mark.parametrize(
    ("header", "language"),
    [("", "en"), ("ko", "ko"), ("ko-KR;q=0.9, en;q=0.8", "ko"), ("de, en;q=0.5, ko;q=0.4", "en"), ("xx;;=", "en")],
)
def test_a_header_names_the_language_that_is_liked_best(header: str, language: str) -> None:
    assert language_asked_for(header) == language


@pytest.mark.django_db
def test_rest_refuses_in_the_language_that_is_asked_for_with_the_same_code(cast: Cast, client: Client) -> None:
    client.force_login(cast.alice)
    body = {"name": "ab", "image": "python"}
    plain, korean = (
        client.post("/api/v1/sessions/", body, "application/json", headers=headers)
        for headers in ({}, {"Accept-Language": "ko"})
    )
    assert plain.status_code == korean.status_code == 400
    assert plain.json()["code"] == korean.json()["code"]
    assert plain.json()["detail"].isascii() and not korean.json()["detail"].isascii()
