"""The checks are worth something: each of these bugs, put into the scheduler, breaks at least one of them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from backendai.scheduler import backfill, decide, gates, limits, place, progress, queueing, sequence
from backendai.scheduler.capacity import agent_states
from backendai.scheduler.demand import Request
from backendai.scheduler.sequences import drf, fair_share, fifo
from backendai.scheduler.snapshot import Snapshot
from tests.scheduler.checks import CHECKS
from tests.scheduler.crowds import a_crowd

CROWDS = 700
Patch = pytest.MonkeyPatch
Check = Callable[[Snapshot, Callable], None]


def first_broken(beginning: int) -> tuple[Snapshot, Check] | None:
    """The first crowd from this one on that breaks a check, and that check; nothing when all hold for all crowds."""
    for number in range(beginning, beginning + CROWDS):
        crowd = a_crowd(Random(number % CROWDS))
        for check in CHECKS:
            try:
                check(crowd, decide.decide)
            except AssertionError:
                return crowd, check
    return None


def priorities_do_not_count(patch: Patch) -> None:
    patch.setattr(sequence, "_bands", lambda pending: [sorted(pending, key=sequence._age)] if pending else [])


def equals_stay_in_the_order_of_the_input(patch: Patch) -> None:
    patch.setattr(sequence, "_age", lambda session: session.created_at)


def memory_does_not_count(patch: Patch) -> None:
    usual = Request.__init__

    def forgetful(self: Request, *values: object, **named: object) -> None:
        usual(self, *values, **named)  # type: ignore[arg-type]
        self.items = tuple(item for item in self.items if item[0] != "mem")

    patch.setattr(Request, "__init__", forgetful)


def the_last_core_of_an_agent_is_given_twice(patch: Patch) -> None:
    usual = agent_states.AgentState.take

    def generous(self: agent_states.AgentState, request: Request, times: int = 1) -> None:
        usual(self, request, times)
        self.ledger["cpu"] += 1000 * times
        if self.free is not self.ledger:
            self.free["cpu"] += 1000 * times

    patch.setattr(agent_states.AgentState, "take", generous)


def limits_count_what_ran_before_only(patch: Patch) -> None:
    patch.setattr(limits.Limits, "count", lambda self, holder, asked: None)


def only_the_narrowest_limit_counts_on(patch: Patch) -> None:
    def once(self: limits.Limits, holder: object, asked: limits.Amounts) -> None:
        for account in self._of(holder).accounts[:1]:  # type: ignore[arg-type]
            account.count(asked)

    patch.setattr(limits.Limits, "count", once)


def a_slot_that_is_not_named_may_always_be_had(patch: Patch) -> None:
    usual = limits._Account.__init__

    def lax(self: limits._Account, limit: object) -> None:
        usual(self, limit)  # type: ignore[arg-type]
        self.unnamed = float("inf")

    patch.setattr(limits._Account, "__init__", lax)


def dependencies_do_not_count(patch: Patch) -> None:
    patch.setattr(gates, "_OF_SESSION", tuple(each for each in gates._OF_SESSION if each[1].step != "dependencies"))


def nobody_is_held_back(patch: Patch) -> None:
    patch.setattr(queueing.Queue, "held_back", lambda self, session: None)


def lower_priorities_pass_unless_the_sequence_is_strict(patch: Patch) -> None:
    usual = queueing.Queue.held_back
    patch.setattr(queueing.Queue, "held_back", lambda self, session: usual(self, session) if self._is_strict else None)


def those_that_may_be_passed_still_hold_back(patch: Patch) -> None:
    patch.setattr(queueing, "may_be_passed", lambda *_: False)


def those_that_may_be_passed_keep_their_place(patch: Patch) -> None:
    patch.setattr(fifo, "may_be_passed", lambda *_: False)


def overtaking_has_no_cap(patch: Patch) -> None:
    patch.setattr(sequence, "is_overdue", lambda *_: False)


def shares_are_those_from_before_the_pass(patch: Patch) -> None:
    usual = sequence.turns
    patch.setattr(decide, "turns", lambda chosen, snapshot, held: usual(chosen, snapshot, deepcopy(held)))


def weights_do_not_count_for_shares(patch: Patch) -> None:
    usual = drf.dominant_share
    patch.setattr(drf, "dominant_share", lambda held, capacity, weight: usual(held, capacity, 1.0))


def fair_share_forgets_the_project(patch: Patch) -> None:
    usual = fair_share._burdens
    patch.setattr(fair_share, "_burdens", lambda line, holder: usual(line, holder._replace(project="project:none")))


def nothing_is_kept_for_the_first_in_line(patch: Patch) -> None:
    patch.setattr(backfill.Reservation, "keep", lambda self, kept: None)


def everybody_is_said_to_end_before_the_reserved_start(patch: Patch) -> None:
    patch.setattr(backfill.Reservation, "ends_before", lambda self, session, now: self.starts_at is not None)


def the_reserved_start_is_too_early(patch: Patch) -> None:
    usual = backfill._start_after

    def hasty(session, demand, before, steps):  # type: ignore[no-untyped-def]
        start = usual(session, demand, before, steps)
        return start and replace(start, at=steps[0][0])

    patch.setattr(backfill, "_start_after", hasty)


def without_known_ends_nothing_is_kept(patch: Patch) -> None:
    patch.setattr(queueing, "reserve_anywhere", lambda session, demand, all_, _: backfill.Reservation(all_, [], None))


def what_did_not_fit_as_a_whole_stays_booked(patch: Patch) -> None:
    patch.setattr(agent_states.AgentStates, "undo", lambda self, *values, **named: None)


def the_last_kernel_of_a_cluster_is_forgotten(patch: Patch) -> None:
    usual = place.placement_of

    def short(session, *rest):  # type: ignore[no-untyped-def]
        placement = usual(session, *rest)
        return placement._replace(kernel_agents=placement.kernel_agents[:-1] or placement.kernel_agents)

    patch.setattr(progress, "placement_of", short)


def what_found_no_room_has_no_room_anywhere(patch: Patch) -> None:
    usual = progress.Progress.place

    def hopeless(self: progress.Progress, session, shape):  # type: ignore[no-untyped-def]
        outcome = usual(self, session, shape)
        for other in self._shapes.values():
            other.no_room = other.no_room or shape.no_room
        return outcome

    patch.setattr(progress.Progress, "place", hopeless)


# With the crowd that gave it away when it was tried last: the others are asked after that one.
BUGS: dict[Callable[[Patch], None], int] = {
    priorities_do_not_count: 0,
    equals_stay_in_the_order_of_the_input: 0,
    memory_does_not_count: 4,
    the_last_core_of_an_agent_is_given_twice: 31,
    limits_count_what_ran_before_only: 34,
    only_the_narrowest_limit_counts_on: 300,
    a_slot_that_is_not_named_may_always_be_had: 118,
    dependencies_do_not_count: 11,
    nobody_is_held_back: 4,
    lower_priorities_pass_unless_the_sequence_is_strict: 4,
    those_that_may_be_passed_still_hold_back: 38,
    those_that_may_be_passed_keep_their_place: 32,
    overtaking_has_no_cap: 91,
    shares_are_those_from_before_the_pass: 136,
    weights_do_not_count_for_shares: 81,
    fair_share_forgets_the_project: 30,
    nothing_is_kept_for_the_first_in_line: 40,
    everybody_is_said_to_end_before_the_reserved_start: 40,
    the_reserved_start_is_too_early: 18,
    without_known_ends_nothing_is_kept: 343,
    what_did_not_fit_as_a_whole_stays_booked: 30,
    the_last_kernel_of_a_cluster_is_forgotten: 14,
    what_found_no_room_has_no_room_anywhere: 340,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_is_caught_and_it_alone(bug):
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        found = first_broken(BUGS[bug])
    assert found, f"no check notices that {bug.__name__.replace('_', ' ')}"
    crowd, check = found
    check(crowd, decide.decide)  # the scheduler as it is passes
