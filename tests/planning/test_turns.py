"""What a pass would do is asked by few at once, and by nobody twice at once."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

import pytest

from backendai.domain.planning.turns import Busy, turn_of

pytestmark = pytest.mark.postgres


def test_two_people_ask_at_once_and_a_third_has_to_wait() -> None:
    with turn_of("alice"), turn_of("bob"):
        assert "The scheduler is busy" in refusal_of("charlie")
    with turn_of("charlie", patience=0.01):
        pass


def test_a_second_question_waits_for_the_first_and_a_third_is_refused() -> None:
    answered, turns = threading.Event(), []

    def ask_again() -> None:
        while not answered.is_set():
            with suppress(Busy), turn_of("alice", patience=30):  # refused while the other probe waits
                turns.append("second")
                answered.set()

    with ExitStack() as first:
        first.enter_context(turn_of("alice"))
        asking = threading.Thread(target=ask_again)
        asking.start()
        while "Two of your requests" not in refusal_of("alice"):
            pass  # until the second one waits
        turns.append("first")
    assert answered.wait(30)
    asking.join()
    assert turns == ["first", "second"]


def test_a_question_that_fails_gives_its_turn_back() -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), turn_of("alice", patience=0.01):
            raise ZeroDivisionError


def refusal_of(person: str) -> str:
    with pytest.raises(Busy) as refused, turn_of(person, patience=0.01):
        pass
    return refused.value.message
