"""Hints coalesce: of many calls one runs and one waits, and nobody's news is overlooked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection
from django.utils import timezone

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.portal.loops import loops
from tests.cast import make_cast
from tests.factories import make_group, make_session
from tests.patience import until

pytestmark = pytest.mark.postgres

PATIENCE = 60.0


class Passes:
    """What stands for the work in a line: notes what is written at its beginning. The first is held until ``go_on``."""

    def __init__(self, line: loops.Line) -> None:
        self.line, self.written = line, set[int]()
        self.seen: list[set[int]] = []
        self.first_runs, self.go_on = threading.Event(), threading.Event()

    def call(self, number: int) -> bool:
        """Write, then ask for a pass; returns whether this call ran it."""
        self.written.add(number)
        with self.line.turn() as is_ours:
            if is_ours:
                self.seen.append(set(self.written))
                self.first_runs.set()
                assert self.go_on.wait(PATIENCE)
        return is_ours


@pytest.fixture
def passes() -> Passes:
    return Passes(loops.Line())


@contextmanager
def running(*calls: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_of_many_calls_one_runs_one_waits_and_the_others_return_at_once(passes: Passes) -> None:
    with running(lambda: passes.call(1)):
        assert passes.first_runs.wait(PATIENCE)
        with running(lambda: passes.call(2)) as (waiting,):
            until(passes.line._waiting.locked)
            assert [passes.call(number) for number in range(3, 20)] == [False] * 17  # here a wait would be for ever
            assert waiting.is_alive()
            passes.go_on.set()
    assert len(passes.seen) == 2


def test_who_returns_at_once_is_seen_by_the_pass_of_the_one_who_waits(passes: Passes) -> None:
    with running(lambda: passes.call(1)):
        assert passes.first_runs.wait(PATIENCE)
        with running(lambda: passes.call(2)):
            until(passes.line._waiting.locked)
            passes.call(3)
            passes.go_on.set()
    assert passes.seen == [{1}, {1, 2, 3}]


def test_who_comes_while_a_pass_runs_waits_for_another(passes: Passes) -> None:
    with running(lambda: passes.call(1)):
        assert passes.first_runs.wait(PATIENCE)
        with running(lambda: passes.call(2)):
            until(passes.line._waiting.locked)
            passes.go_on.set()
    assert passes.call(3)
    assert passes.seen == [{1}, {1, 2}, {1, 2, 3}]


def test_a_pass_that_fails_gives_its_turn_back(passes: Passes) -> None:
    with pytest.raises(ZeroDivisionError), passes.line.turn():
        raise ZeroDivisionError
    passes.go_on.set()
    assert passes.call(1)


def test_in_a_crowd_every_call_is_followed_by_a_pass_that_begins_after_it(passes: Passes) -> None:
    passes.go_on.set()
    callers, rounds = 8, 300

    def crowd(caller: int) -> Callable[[], None]:
        def call() -> None:
            for number in range(rounds):
                passes.call(caller * rounds + number)

        return call

    with running(*(crowd(caller) for caller in range(callers))):
        pass
    assert set().union(*passes.seen) == set(range(callers * rounds))


@pytest.mark.django_db(transaction=True)
def test_hints_that_come_while_a_pass_runs_cost_one_more_which_sees_all_their_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, group = make_cast().alice, make_group()
    seen: list[set[str]] = []
    first_runs, go_on = threading.Event(), threading.Event()

    def one_group(group: ResourceGroup, now: object) -> int:
        seen.append(set(ComputeSession.objects.pending().values_list("name", flat=True)))
        first_runs.set()
        assert go_on.wait(PATIENCE)
        return 0

    def hint() -> None:
        try:
            loops.schedule_group(group.pk, timezone.now())
        finally:
            connection.close()

    monkeypatch.setattr(loops, "_one_group", one_group)
    make_session(alice, name="first")
    with running(hint):
        assert first_runs.wait(PATIENCE)
        make_session(alice, name="second")
        with running(hint):
            until(loops._lines[group.pk]._waiting.locked)
            make_session(alice, name="third")
            loops.schedule_group(group.pk, timezone.now())
            go_on.set()
    assert seen == [{"first"}, {"first", "second", "third"}]
