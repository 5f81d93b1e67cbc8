"""What is decided about runs: over random graphs, each element succeeds once or says why it did not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.scheduler.runs.decide import decide_run
from backendai.scheduler.runs.snapshot import (
    Blocked,
    Decision,
    Edge,
    Ended,
    OnFailure,
    Ready,
    RetryRule,
    RunStatus,
    RunView,
    StepView,
    TaskState,
    When,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
S = TaskState
UNMET = (S.FAILED, S.SKIPPED, S.CANCELLED)


class Game:
    """A run whose sessions end by chance, kept in dictionaries as the database keeps it."""

    def __init__(self, steps: Mapping[str, dict[str, Any]], on_failure: OnFailure, chance: random.Random) -> None:
        self.steps, self.on_failure, self.chance = steps, on_failure, chance
        self.tasks = {(name, i): uuid4() for name, step in steps.items() for i in range(step["size"])}
        self.state = dict.fromkeys(self.tasks, S.WAITING)
        self.attempts: Counter[tuple[str, int]] = Counter()
        self.over: dict[tuple[str, int], bool] = {}  # released elements whose session has ended, and how
        self.successes: Counter[tuple[str, int]] = Counter()
        self.status: RunStatus | None = None

    def at(self, task: UUID) -> tuple[str, int]:
        return next(key for key, one in self.tasks.items() if one == task)

    def view(self) -> RunView:
        steps = []
        for name, step in self.steps.items():
            mine = {i: self.state[name, i] for i in range(step["size"])}
            each = [on for on, when in step["after"].items() if when == When.EACH]
            waiting = [i for i, state in mine.items() if state == S.WAITING]
            ready = [i for i in waiting if all(self.state[on, i] == S.SUCCEEDED for on in each)]
            blocked = [i for i in waiting if any(self.state[on, i] in UNMET for on in each)]
            steps.append(
                StepView(
                    name,
                    step["size"],
                    Counter(mine.values()),
                    tuple(Edge(on, when) for on, when in step["after"].items()),
                    at_once=step["at_once"],
                    probe=step["probe"],
                    give_up_after=step["give_up_after"],
                    is_finally=name == "last",
                    retry=RetryRule(times=step["times"]),
                    ready=tuple(Ready(self.tasks[name, i], i) for i in ready),
                    blocked=tuple(Blocked(self.tasks[name, i], i, each[0]) for i in blocked),
                )
            )
        ended = [
            Ended(self.tasks[key], key[0], self.attempts[key], well, False, "" if well else "task-failed")
            for key, well in self.over.items()
        ]
        return RunView(RunStatus.RUNNING, tuple(steps), tuple(ended), on_failure=self.on_failure)

    def carry_out(self, decision: Decision) -> None:
        for one in decision.settle:
            key = self.at(one.task)
            assert self.state[key] == S.RELEASED
            self.state[key] = one.to
            self.successes[key] += self.over.pop(key) and one.to == S.SUCCEEDED
        for again in decision.retry:
            key = self.at(again.task)
            assert self.attempts[key] <= self.steps[key[0]]["times"], "no more tries than the rule allows"
            del self.over[key]
            self.state[key] = S.WAITING
        for close in decision.close:
            for key, state in self.state.items():
                mine = key[0] == close.step and state == S.WAITING
                if mine and (close.tasks is None or self.tasks[key] in close.tasks):
                    self.state[key] = close.to
        for task in decision.release:
            key = self.at(task)
            assert self.state[key] == S.WAITING
            self.check_edges(key)
            self.state[key] = S.RELEASED
            self.attempts[key] += 1
        for name, step in self.steps.items():
            live = sum(self.state[name, i] == S.RELEASED for i in range(step["size"]))
            assert not step["at_once"] or live <= step["at_once"]
        self.status = decision.end

    def check_edges(self, key: tuple[str, int]) -> None:
        name, i = key
        for on, when in self.steps[name]["after"].items():
            whole = [self.state[on, j] for j in range(self.steps[on]["size"])]
            if when == When.EACH:
                assert self.state[on, i] == S.SUCCEEDED, "an element runs after its own"
                continue
            assert not {S.WAITING, S.RELEASED} & set(whole), f"{name} runs before {on} is over"
            assert when != When.SUCCESS or set(whole) == {S.SUCCEEDED}
            assert when != When.FAILURE or S.FAILED in whole
        if name == "last":
            assert all(s not in (S.WAITING, S.RELEASED) for (step, _), s in self.state.items() if step != "last")

    def play(self) -> None:
        for number in range(2000):
            decision = decide_run(self.view(), NOW + timedelta(seconds=number))
            self.carry_out(decision)
            if self.status:
                return
            live = [key for key, state in self.state.items() if state == S.RELEASED and key not in self.over]
            assert live or not decision.is_empty or self.over, f"the run stands still: {self.state}"
            for key in self.chance.sample(live, k=self.chance.randint(0, len(live))):
                self.over[key] = self.chance.random() < 0.7
        raise AssertionError("the run does not end")


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    steps: dict[str, dict[str, Any]] = {}
    for number in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 4))
        after: dict[str, When] = {}
        for name, other in steps.items():
            if draw(st.booleans()):
                choices = [one for one in When if one != When.EACH or other["size"] == size]
                after[name] = draw(st.sampled_from(choices))
        steps[f"s{number}"] = {
            "size": size,
            "after": after,
            "at_once": draw(st.sampled_from([0, 0, 1, 2])),
            "probe": draw(st.sampled_from([0, 0, 1, 2])),
            "give_up_after": draw(st.sampled_from([0, 0, 1, 2])),
            "times": draw(st.sampled_from([0, 0, 1, 2])),
        }
    if draw(st.booleans()):
        usual = {"at_once": 0, "probe": 0, "give_up_after": 0, "times": 0}
        steps["last"] = {"size": 1, "after": {}, **usual}
    return steps


@settings(max_examples=150, deadline=None)
@given(graphs(), st.sampled_from(list(OnFailure)), st.integers(0, 2**32))
def test_every_run_ends_and_each_element_succeeds_once_at_most(
    steps: dict[str, dict[str, Any]], on_failure: OnFailure, seed: int
) -> None:
    game = Game(steps, on_failure, random.Random(seed))
    game.play()
    assert set(game.state.values()) <= {S.SUCCEEDED, *UNMET}
    assert all(number <= 1 for number in game.successes.values())
    assert {key for key, state in game.state.items() if state == S.SUCCEEDED} == set(+game.successes)
    assert (game.status == RunStatus.FAILED) == (S.FAILED in game.state.values())
    if "last" in steps:
        assert game.attempts["last", 0] == 1, "the last step runs whatever became of the others"


def one(**over: Any) -> StepView:
    counts = over.pop("counts", {S.WAITING: 3})
    ready = tuple(Ready(uuid4(), i) for i in range(counts.get(S.WAITING, 0)))
    return StepView("train", sum(counts.values()), counts, ready=ready, **over)


def test_a_trial_comes_before_the_rest_and_stops_it_when_it_fails() -> None:
    assert len(decide_run(RunView(RunStatus.RUNNING, (one(probe=1),)), NOW).release) == 1
    tried = one(probe=1, counts={S.WAITING: 2, S.SUCCEEDED: 1})
    assert len(decide_run(RunView(RunStatus.RUNNING, (tried,)), NOW).release) == 2
    failed = decide_run(RunView(RunStatus.RUNNING, (one(probe=1, counts={S.WAITING: 2, S.FAILED: 1}),)), NOW)
    assert (failed.close[0].code, failed.release, failed.end) == ("probe-failed", (), RunStatus.FAILED)


def test_a_paused_run_and_one_without_room_release_nothing() -> None:
    assert decide_run(RunView(RunStatus.PAUSED, (one(),)), NOW).is_empty
    assert decide_run(RunView(RunStatus.RUNNING, (one(),), room=0), NOW).is_empty


def test_pauses_grow_to_their_limit() -> None:
    rule = RetryRule(times=20, wait=30, factor=2, most=100)
    assert [rule.pause(attempt) for attempt in (1, 2, 3, 20)] == [30, 60, 100, 100]


def test_what_failed_before_a_retry_does_not_close_the_retried_element() -> None:
    before = {S.FAILED: 1, S.CANCELLED: 1}
    for rule, over in ((OnFailure.DRAIN, {}), (OnFailure.STOP, {}), (OnFailure.CONTINUE, {"give_up_after": 1})):
        step = one(counts={S.WAITING: 1, **before}, excused=before, **over)
        decision = decide_run(RunView(RunStatus.RUNNING, (step,), on_failure=rule), NOW)
        assert (decision.close, len(decision.release), decision.stops) == ((), 1, False), rule
        again = one(counts={S.WAITING: 1, **before}, **over)
        assert decide_run(RunView(RunStatus.RUNNING, (again,), on_failure=rule), NOW).close, rule


def test_a_retried_element_is_the_new_trial() -> None:
    before = {S.FAILED: 1, S.CANCELLED: 3}
    step = one(probe=1, counts={S.WAITING: 2, **before}, excused=before)
    assert len(decide_run(RunView(RunStatus.RUNNING, (step,)), NOW).release) == 1
    failed = one(probe=1, counts={S.WAITING: 1, S.FAILED: 2, S.CANCELLED: 3}, excused=before)
    assert decide_run(RunView(RunStatus.RUNNING, (failed,)), NOW).close[0].code == "probe-failed"
