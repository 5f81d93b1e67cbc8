"""Gates: each says in numbers why it is closed, and holds nobody else back."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from backendai.base.core.slots import Slots
from backendai.scheduler.snapshot import Dependency, DependencyState, Holder, ImageBuild, LimitView
from tests.scheduler.worlds import NOW, a_session, an_agent, plan_of, wait_of

ANN = Holder("user:ann", "key-pair:AK1", "project:vision", "domain:1")


def reason_for(session=None, agents=None, **rules):
    waits = plan_of([an_agent()] if agents is None else agents, [session or a_session()], **rules).waits
    return waits[0].reason if waits else None


def of_ann(name="train", asks=None, **changes):
    return a_session(name, asks, holder=ANN, **changes)


def depending_on(*states):
    return tuple(Dependency(UUID(int=number), f"step-{number}", state) for number, state in enumerate(states))


def test_it_says_until_when_a_start_time_keeps_a_session_waiting():
    starts_at = NOW + timedelta(minutes=90)
    reason = reason_for(a_session(starts_at=starts_at))
    assert (reason.code, reason.until, reason.never) == ("start-time-not-reached", starts_at, False)
    assert reason.message == "Asked to start at 2025-06-02 10:30:00 UTC."


def test_it_opens_the_gate_when_the_start_time_is_reached():
    assert reason_for(a_session(starts_at=NOW)) is None


def test_it_says_how_far_an_image_is():
    reason = reason_for(a_session(image="torch:2", image_build=ImageBuild(0.427, "step 3 of 7")))
    assert reason.code == "image-building"
    assert reason.message == "Image torch:2 is being built: 42 % done (step 3 of 7)."
    assert reason.details == {"image": "torch:2", "message": "step 3 of 7", "percent": 42}


def test_it_admits_that_the_progress_of_an_image_is_not_known():
    reason = reason_for(a_session(image="torch:2", image_build=ImageBuild(None, "")))
    assert reason.message == "Image torch:2 is being built: progress not known."
    assert reason.details["percent"] is None


def test_it_says_how_to_mend_a_failed_image():
    build = ImageBuild(0.5, "no space left on the disk", failed=True, fix="Free 4 GiB and build again.")
    reason = reason_for(a_session(image="torch:2", image_build=build))
    assert (reason.code, reason.never) == ("image-build-failed", False), "the build is tried again"
    assert reason.message == "Image torch:2 could not be built: no space left on the disk. Free 4 GiB and build again."
    assert reason.details["fix"] == "Free 4 GiB and build again."


def test_it_refuses_kernels_of_two_architectures_on_one_agent():
    reason = reason_for(a_session(kernels=[{"cpu": 1}, {"cpu": 1}], architectures=["x86_64", "aarch64"]))
    assert (reason.code, reason.never) == ("mixed-architectures", True)


def test_it_says_that_there_is_nothing_to_start():
    assert reason_for(a_session(kernels=[])).code == "no-kernels"


def test_it_waits_for_sessions_that_must_end_first():
    session = a_session(dependencies=depending_on(DependencyState.SUCCEEDED, DependencyState.LIVE))
    reason = reason_for(session)
    assert (reason.code, reason.never) == ("dependency-not-finished", False)
    assert reason.message == "Waits for session step-1 to succeed."
    assert (reason.details["open"], reason.details["dependencies"]) == (1, 2)


def test_it_names_all_sessions_that_have_not_ended():
    session = a_session(
        dependencies=depending_on(DependencyState.LIVE, DependencyState.SUCCEEDED, DependencyState.LIVE)
    )
    assert reason_for(session).message == "Waits for 2 of 3 sessions to succeed: step-0, step-2."
    session = a_session(dependencies=depending_on(DependencyState.FAILED, DependencyState.FAILED))
    assert reason_for(session).message == "Sessions that had to succeed did not: step-0, step-1."


def test_it_says_never_when_a_session_it_depends_on_has_failed():
    session = a_session(dependencies=depending_on(DependencyState.LIVE, DependencyState.FAILED))
    reason = reason_for(session)
    assert (reason.code, reason.never) == ("dependency-failed", True)
    assert reason.message == "Session step-1, which had to succeed, did not."


def test_it_starts_once_all_it_depends_on_ended_well():
    assert reason_for(a_session(dependencies=depending_on(DependencyState.SUCCEEDED))) is None


def test_it_refuses_a_type_that_the_group_does_not_take():
    reason = reason_for(a_session(session_type="odd"))
    assert (reason.code, reason.never) == ("session-type-not-allowed", True)
    assert reason.message == (
        "Resource group default takes no sessions of type odd (4 allowed: batch, inference, interactive, system)."
    )  # fmt: skip
    assert reason_for(a_session(session_type="odd"), session_types=frozenset({"odd"})) is None


def test_it_says_that_no_agent_offers_a_slot():
    reason = reason_for(a_session(asks={"cpu": 1, "rocm.device": 2}))
    assert (reason.code, reason.never) == ("slot-not-offered", True)
    assert reason.message == (
        "No agent of resource group default offers AMD GPU (offered: CPU, GPU, memory)."
    )  # fmt: skip
    assert (reason.details["slot"], reason.details["asked"]) == ("rocm.device", "2")


def test_it_speaks_of_missing_agents_before_it_speaks_of_missing_slots():
    assert reason_for(a_session(asks={"rocm.device": 2}), agents=[]).code == "no-agent"


def test_it_says_never_when_none_of_the_designated_agents_is_there():
    reason = reason_for(a_session(designated=frozenset({UUID(int=5)})))
    assert (reason.code, reason.never) == ("designated-agent-unknown", True)


def test_it_measures_a_session_by_the_agents_that_it_may_run_on():
    small, large = an_agent("small", has={"cpu": 2}), an_agent("large", has={"cpu": 9})
    reason = reason_for(a_session(asks={"cpu": 4}, designated=frozenset({small.id})), agents=[small, large])
    assert (reason.code, reason.never, reason.details["agent"]) == ("bigger-than-any-agent", True, "small")


def test_it_counts_sessions_that_hold_slots_against_a_limit():
    limits = {"user:ann": LimitView("user", "ann", max_sessions=3, sessions=2)}
    first, second = of_ann("first", age=2), of_ann("second", age=1)
    plan = plan_of([an_agent()], [first, second], limits=limits)
    assert [placement.session_id for placement in plan.placements] == [first.id]
    reason = wait_of(plan, second).reason
    assert (reason.code, reason.never) == ("too-many-sessions", False)
    assert reason.message == "User ann has 3 of at most 3 sessions at once."
    assert reason.details == {"scope": "user", "name": "ann", "used": 3, "asked": 1, "limit": 3}


def test_it_says_never_when_no_session_is_allowed_at_all():
    limits = {"user:ann": LimitView("user", "ann", max_sessions=0)}
    assert reason_for(of_ann(), limits=limits).never


@pytest.mark.parametrize(
    ("key", "scope", "who"),
    [
        ("key-pair:AK1", "key-pair", "Key pair x"),
        ("user:ann", "user", "User x"),
        ("project:vision", "project", "Project x"),
        ("domain:1", "domain", "Domain x"),
    ],
)
def test_it_names_scope_slot_and_numbers_of_a_limit(key, scope, who):
    limit = LimitView(scope, "x", Slots.parse({"mem": "8g"}), used=Slots.parse({"mem": "6g"}))
    reason = reason_for(of_ann(asks={"cpu": 1, "mem": "4g"}), limits={key: limit})
    assert (reason.code, reason.never) == ("slot-limit", False)
    assert reason.message == f"{who} uses 6 GiB of at most 8 GiB of memory; this session requests 4 GiB."
    assert reason.details == {
        "scope": scope, "name": "x", "slot": "mem",
        "used": "6442450944", "asked": "4294967296", "limit": "8589934592",
    }  # fmt: skip


def test_it_says_never_when_a_session_alone_exceeds_a_limit_even_if_another_is_used_up_as_well():
    limits = {
        "user:ann": LimitView("user", "ann", Slots.parse({"cpu": 4}), used=Slots.parse({"cpu": 4})),
        "project:vision": LimitView("project", "vision", Slots.parse({"cpu": 2})),
    }
    reason = reason_for(of_ann(asks={"cpu": 3}), limits=limits)
    assert (reason.never, reason.details["scope"]) == (True, "project")
    assert reason.message == "Project vision may use at most 2 CPU cores; this session alone requests 3."


def test_a_slot_that_a_policy_does_not_name_is_free_or_forbidden_as_the_policy_says():
    session, slots = of_ann(asks={"cpu": 1, "cuda.device": 1}), Slots.parse({"cpu": 4})
    assert reason_for(session, limits={"user:ann": LimitView("user", "ann", slots)}) is None
    for limit in (
        LimitView("user", "ann", slots, unnamed_limited=True),
        LimitView("user", "ann", slots, forbidden=frozenset({"cuda.device"})),
    ):
        reason = reason_for(session, limits={"user:ann": limit})
        assert (reason.never, reason.details["slot"], reason.details["limit"]) == (True, "cuda.device", "0")


def test_limits_are_checked_slot_by_slot():
    """More of one slot and less of another is neither more nor less."""
    limits = {"user:ann": LimitView("user", "ann", Slots.parse({"cpu": 8, "cuda.device": 1}))}
    assert reason_for(of_ann(asks={"cpu": 1, "cuda.device": 2}), limits=limits).details["slot"] == "cuda.device"


def test_all_kernels_of_a_cluster_count_against_a_limit():
    limits = {"user:ann": LimitView("user", "ann", Slots.parse({"cpu": 5}))}
    cluster = of_ann(kernels=[{"cpu": 2}] * 3, multi_node=True)
    assert reason_for(cluster, limits=limits).details["asked"] == "6"


def test_over_the_limit_it_waits_instead_of_failing_and_holds_nobody_back():
    limits = {"user:ann": LimitView("user", "ann", max_sessions=5)}
    crowd = [of_ann(f"s{number}", {"mem": 1}, age=99 - number) for number in range(50)]
    other = a_session("other", {"mem": 1})
    plan = plan_of([an_agent()], [*crowd, other], limits=limits)
    assert len(plan.placements) == 6
    assert plan.placements[-1].session_id == other.id
    assert {wait.reason.code for wait in plan.waits} == {"too-many-sessions"}
    assert len(plan.waits) == 45
