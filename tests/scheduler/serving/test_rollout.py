"""Which replicas start and end: single cases, and whole updates in a world where starts may fail and rooms be full."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.scheduler.serving.health import Health, health_of, reached_by
from backendai.scheduler.serving.rollout import decide_rollout, starts_again
from backendai.scheduler.serving.snapshot import DesiredState, EndpointView, ReplicaState, ReplicaView, RevisionView
from tests.effort import examples
from tests.scheduler.serving.toy import START

NOW = START + timedelta(hours=1)
OLD = NOW - timedelta(minutes=10)
_ids = count(1)


def ready(revision=1, **fields):
    usual = {"state": ReplicaState.READY, "ready_at": OLD}
    number = next(_ids)
    return ReplicaView(UUID(int=number), number, revision, **usual | fields)


def starting(revision=1, **fields):
    return ready(revision, **{"state": ReplicaState.STARTING, "ready_at": None} | fields)


def an_endpoint(*replicas, **fields):
    usual = {"minimum": 1, "maximum": 8, "desired": len(replicas)}
    return EndpointView(UUID(int=1), replicas=replicas, **usual | fields)


def test_it_starts_what_is_missing_two_unplaced_at_most():
    assert decide_rollout(an_endpoint(ready()), 5, NOW).starts == ((1, 2),)
    waits = [starting(waits_for="no-agent-fits", wait_message="All is taken.") for _ in range(2)]
    plan = decide_rollout(an_endpoint(ready(), *waits), 5, NOW)
    assert (plan.starts, plan.reason.code) == ((), "no-room")
    assert "All is taken." in plan.reason.message


def test_one_replica_that_waits_says_why():
    plan = decide_rollout(an_endpoint(ready(), starting(waits_for="no-agent-fits")), 2, NOW)
    assert (plan.starts, plan.reason.code) == ((), "no-room")


def test_failed_starts_wait():
    results = {1: RevisionView(failed_starts=2, retry_at=NOW + timedelta(seconds=20))}
    plan = decide_rollout(an_endpoint(ready(), revisions=results), 2, NOW)
    assert (plan.starts, plan.reason.code, plan.reason.until) == ((), "start-backoff", NOW + timedelta(seconds=20))
    assert decide_rollout(an_endpoint(ready(), revisions=results), 2, NOW + timedelta(seconds=20)).starts == ((1, 1),)


def test_a_start_after_failed_ones_says_why_they_failed():
    failed = {1: RevisionView(failed_starts=1, last_error="The image is gone.")}
    reason = starts_again(an_endpoint(ready(), starting(), revisions=failed))
    assert (reason.code, reason.until) == ("starting-again", None)
    assert reason.message == "A replica is starting again. 1 start of revision 1 failed. The image is gone."
    assert starts_again(an_endpoint(ready(), revisions=failed)) is None
    assert starts_again(an_endpoint(ready(), starting())) is None


def test_less_takes_unplaced_then_loading_then_the_least_busy():
    busy, idle = ready(open=5), ready(open=0)
    loading, unplaced = ready(state=ReplicaState.LOADING, ready_at=None), starting(waits_for="no-room")
    endpoint = an_endpoint(busy, idle, loading, unplaced)
    assert decide_rollout(endpoint, 3, NOW).drains == (unplaced.id,)
    assert decide_rollout(endpoint, 2, NOW).drains == (unplaced.id, loading.id)
    assert decide_rollout(endpoint, 1, NOW).drains == (unplaced.id, loading.id, idle.id)


def test_a_silent_replica_is_replaced_and_goes_when_another_one_serves():
    silent = ready(is_answering=False)
    assert decide_rollout(an_endpoint(silent), 1, NOW).starts == ((1, 1),)
    assert decide_rollout(an_endpoint(silent, starting()), 1, NOW).drains == ()
    assert decide_rollout(an_endpoint(silent, ready()), 1, NOW).drains == (silent.id,)
    back, spare = replace(silent, is_answering=True), starting()
    assert decide_rollout(an_endpoint(back, spare), 1, NOW).drains == (spare.id,)


def test_a_drained_agent_loses_its_replica_after_the_substitute_serves():
    leaving = ready(is_leaving=True)
    assert decide_rollout(an_endpoint(leaving), 1, NOW).starts == ((1, 1),)
    assert decide_rollout(an_endpoint(leaving, starting()), 1, NOW).drains == ()
    assert decide_rollout(an_endpoint(leaving, ready()), 1, NOW).drains == (leaving.id,)


def test_an_update_starts_one_waits_for_its_proof_and_goes_on():
    old = [ready(), ready()]
    assert decide_rollout(an_endpoint(*old, next=2), 2, NOW).starts == ((2, 1),)
    young = ready(2, ready_at=NOW - timedelta(seconds=59))
    plan = decide_rollout(an_endpoint(*old, young, next=2), 2, NOW)
    assert (plan.starts, plan.drains, plan.reason.code) == ((), (), "update-holds")
    assert plan.reason.until == NOW + timedelta(seconds=1)
    assert len(decide_rollout(an_endpoint(*old, ready(2), next=2), 2, NOW).drains) == 1
    assert decide_rollout(an_endpoint(ready(2), ready(2), next=2), 2, NOW).finishes


def test_sentences_about_one_replica_are_in_the_singular():
    def held(olds, news):
        replicas = [*[ready() for _ in range(olds)], *[starting(2) for _ in range(news)]]
        return str(decide_rollout(an_endpoint(*replicas, next=2, max_surge=news), olds, NOW).reason.message)

    assert held(1, 1) == "A new replica is starting. An old replica serves meanwhile."
    assert held(2, 2) == "2 new replicas are starting. 2 old replicas serve meanwhile."


def test_an_update_without_room_says_so_and_a_gap_lets_it_go_on():
    old, waits = ready(), starting(2, waits_for="no-agent-fits", wait_message="All GPUs are taken.")
    assert decide_rollout(an_endpoint(old, waits, next=2), 1, NOW).reason.code == "update-needs-room"
    assert decide_rollout(an_endpoint(old, waits, next=2, max_unavailable=1), 1, NOW).drains == (old.id,)


def test_two_failed_starts_or_many_errors_roll_back():
    assert decide_rollout(an_endpoint(ready(), next=2, revisions={2: RevisionView(failed_starts=2)}), 1, NOW).rolls_back
    worse = {1: RevisionView(requests=100, errors=1), 2: RevisionView(requests=20, errors=2)}
    assert decide_rollout(an_endpoint(ready(), ready(2), next=2, revisions=worse), 1, NOW).rolls_back
    few = {2: RevisionView(requests=19, errors=19)}
    assert not decide_rollout(an_endpoint(ready(), ready(2), next=2, revisions=few), 1, NOW).rolls_back


def test_a_number_can_grow_during_an_update():
    plan = decide_rollout(an_endpoint(ready(), ready(), starting(2), next=2), 4, NOW)
    assert plan.starts == ((1, 2),)


def test_stopped_and_asleep_drain_all():
    endpoint = an_endpoint(ready(), starting(), wish=DesiredState.STOPPED)
    assert len(decide_rollout(endpoint, 0, NOW).drains) == 2


def test_without_replicas_an_update_neither_ends_nor_is_forgotten():
    for fields in ({"wish": DesiredState.STOPPED}, {"minimum": 0}):
        plan = decide_rollout(an_endpoint(starting(2), next=2, **fields), 0, NOW)
        assert (plan.finishes, plan.rolls_back, plan.reason.code) == (False, False, "update-rests")
        broken = {2: RevisionView(failed_starts=2)}
        assert decide_rollout(an_endpoint(next=2, revisions=broken, **fields), 0, NOW).rolls_back


def test_what_waits_for_a_limit_says_so():
    for code, told in (("slot-limit", "over-quota"), ("too-many-sessions", "over-quota"), ("no-agent-fits", "no-room")):
        waits = [starting(waits_for=code) for _ in range(2)]
        assert decide_rollout(an_endpoint(*waits), 3, NOW).reason.code == told


def test_health():
    assert health_of(an_endpoint(ready())) == Health.SERVING
    assert health_of(an_endpoint(ready(), starting(), reached=1)) == Health.SCALING_UP
    assert health_of(an_endpoint(ready(), starting(), reached=2)) == Health.DEGRADED
    broken = {1: RevisionView(failed_starts=1)}
    assert health_of(an_endpoint(ready(), starting(), reached=1, revisions=broken)) == Health.DEGRADED
    assert health_of(an_endpoint(starting())) == Health.STARTING
    assert health_of(an_endpoint(ready(is_answering=False))) == Health.UNAVAILABLE
    assert health_of(an_endpoint(minimum=0)) == Health.ASLEEP
    assert health_of(an_endpoint(desired=1, revisions={1: RevisionView(failed_starts=1)})) == Health.UNAVAILABLE
    assert health_of(an_endpoint(ready(), wish=DesiredState.STOPPED)) == Health.STOPPED


def test_replicas_that_answered_count_until_fewer_are_wanted():
    assert reached_by(an_endpoint(ready(), ready(), starting(), reached=1)) == 2
    assert reached_by(an_endpoint(ready(), ready(is_answering=False), starting(), reached=2)) == 2
    assert reached_by(an_endpoint(ready(), ready(), desired=1, reached=2)) == 1
    assert reached_by(an_endpoint(ready(), wish=DesiredState.STOPPED, reached=1)) == 0


@settings(max_examples=examples(300), deadline=None)
@given(
    desired=st.integers(1, 5),
    surge=st.integers(0, 2),
    unavailable=st.integers(0, 2),
    room=st.integers(0, 8),
    failures=st.lists(st.booleans(), max_size=30),
)
def test_an_update_keeps_its_budget_and_ends_or_says_why_not(desired, surge, unavailable, room, failures):
    if surge + unavailable == 0:
        surge = 1
    fails = iter(failures)
    replicas, results, now = [ready() for _ in range(desired)], {}, NOW
    endpoint = an_endpoint(*replicas, next=2, max_surge=surge, max_unavailable=unavailable)
    room = max(room, desired)
    for _ in range(60 * (desired + 2)):
        endpoint = replace(endpoint, replicas=tuple(replicas), revisions=results)
        plan = decide_rollout(endpoint, desired, now)
        if plan.finishes or plan.rolls_back:
            break
        replicas = [one for one in replicas if one.id not in plan.drains]
        assert sum(one.serves for one in replicas) >= min(desired - unavailable, desired)
        for revision, starts in plan.starts:
            replicas += [starting(revision) for _ in range(starts)]
        assert len(replicas) <= desired + surge
        replicas, results = _a_while_later(replicas, results, room, fails, now)
        now += timedelta(seconds=20)
    else:
        assert plan.reason is not None
        assert plan.reason.code in ("update-needs-room", "start-backoff")
        return
    if plan.finishes:
        assert {one.revision for one in replicas} == {2}


def _a_while_later(replicas, results, room, fails, now):
    """Place what fits; a placed start serves or fails."""
    later, placed = [], 0
    for one in sorted(replicas, key=lambda one: one.is_coming):
        placed += 1
        if not one.is_coming:
            later.append(one)
        elif placed > room:
            later.append(replace(one, waits_for="no-agent-fits"))
        elif one.revision == 2 and next(fails, False):
            failed = results.get(2, RevisionView()).failed_starts + 1
            results = {**results, 2: RevisionView(failed_starts=failed, retry_at=now + timedelta(seconds=10))}
            placed -= 1
        else:
            results = {**results, one.revision: RevisionView()}
            later.append(replace(one, state=ReplicaState.READY, ready_at=now, waits_for=""))
    return later, results
