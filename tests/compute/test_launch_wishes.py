"""Wishes of a launch: priority, batch timeout, what it waits for, agents, placement; each refusal names its numbers."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import Result, Status
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session

pytestmark = pytest.mark.django_db


def refusal(cast: Cast, **over: Any) -> UserError:
    """Return the error with which this launch is refused, nothing being written."""
    before = ComputeSession.objects.count()
    with pytest.raises(UserError) as caught:
        make_session(cast.alice, **over)
    assert ComputeSession.objects.count() == before
    return caught.value


def batch(cast: Cast, **over: Any) -> ComputeSession:
    """Return a batch session of Alice."""
    return make_session(cast.alice, session_type="batch", startup_command="true", **over)


def give(holder: Any, **limits: Any) -> ResourcePolicy:
    """Give the holder a policy of its own."""
    holder.policy = ResourcePolicy.objects.create(name=f"policy-{uuid.uuid4().hex[:6]}", **limits)
    holder.save()
    return holder.policy


@pytest.mark.parametrize(
    ("name", "title", "is_customized", "stem"),
    [
        ("python-3.11", "Python", False, "python-3-11"),
        ("lab-python:latest-customized_b88d683756ab", "mylab-v1", True, "mylab-v1"),
        ("lab-python:latest-customized_b88d683756ac", "한글 이름", True, "session"),
        ("lab-python:latest-customized_b88d683756ad", "x" * 60, True, "x" * 40),
    ],
)
def test_a_session_without_a_name_is_called_after_the_image_as_people_know_it(
    cast: Cast, name: str, title: str, is_customized: bool, stem: str
) -> None:
    image = make_image(name, title=title, is_customized=is_customized, owner=cast.alice)
    session = make_session(cast.alice, image=image.name, name="")
    assert re.fullmatch(rf"{stem}-[0-9a-f]{{6}}", session.name)


@pytest.mark.parametrize(("asked", "kept"), [(None, 10), (0, 0), (100, 100), (37, 37)])
def test_a_priority_is_kept_and_is_10_when_none_is_asked(cast: Cast, asked: int | None, kept: int) -> None:
    assert make_session(cast.alice, priority=asked).priority == kept


@pytest.mark.parametrize("asked", [-1, 101, 10**9])
def test_a_priority_outside_0_to_100_is_refused(cast: Cast, asked: int) -> None:
    error = refusal(cast, priority=asked)
    assert (error.field, error.code) == ("priority", "invalid-priority")
    assert error.message == f"Priority {asked} is not between 0 and 100."


def test_the_strictest_policy_caps_the_priority_and_the_refusal_says_whose_it_is(cast: Cast) -> None:
    give(cast.alice, max_priority=50)
    give(cast.project, max_priority=20)
    give(cast.project.domain, max_priority=90)
    assert make_session(cast.alice, priority=20).priority == 20
    error = refusal(cast, priority=21)
    assert (error.field, error.code) == ("priority", "priority-too-high")
    assert error.message == f"Priority 21 requested, but project {cast.project.name} may have at most 20."
    assert error.details.items() >= {"wanted": 21, "limit": 20, "scope": "project"}.items()


def test_who_asks_for_no_priority_gets_the_highest_allowed_when_that_is_below_the_usual_one(cast: Cast) -> None:
    give(cast.alice.key_pairs.get(), max_priority=3)
    assert make_session(cast.alice).priority == 3


def test_the_strictest_policy_limits_the_kernels_of_a_session(cast: Cast) -> None:
    give(cast.alice, max_kernels_per_session=4)
    give(cast.project, max_kernels_per_session=2)
    assert make_session(cast.alice, cluster_size=2).kernels.count() == 2
    error = refusal(cast, cluster_size=3)
    assert (error.field, error.code) == ("cluster_size", "too-many-kernels")
    assert error.message == f"3 kernels requested, but one session of project {cast.project.name} may have at most 2."


def test_a_batch_timeout_is_kept_for_batch_sessions_only(cast: Cast) -> None:
    assert batch(cast, batch_timeout=timedelta(minutes=5)).batch_timeout == timedelta(minutes=5)
    error = refusal(cast, batch_timeout=timedelta(minutes=5))
    assert (error.field, error.code) == ("batch_timeout", "batch-only")


@pytest.mark.parametrize("timeout", [timedelta(0), timedelta(seconds=-5), timedelta(days=999_999)])
def test_a_batch_timeout_that_is_no_time_is_refused(cast: Cast, timeout: timedelta) -> None:
    error = refusal(cast, session_type="batch", startup_command="true", batch_timeout=timeout)
    assert (error.field, error.code) == ("batch_timeout", "invalid-batch-timeout")
    assert error.message in ("Enter a time longer than 0.", "Enter a time of at most 3650 days.")
    assert ("3650 days" in error.message) == (timeout > timedelta(0))


def test_it_waits_for_own_sessions_named_by_id_or_name_once_each(cast: Cast) -> None:
    first, second = batch(cast, name="first"), batch(cast, name="second")
    later = batch(cast, depends_on=["first", str(second.pk), str(first.pk).upper()])
    assert set(later.depends_on.all()) == {first, second}


def test_a_name_means_the_live_session_of_that_name_else_the_newest(cast: Cast) -> None:
    old = batch(cast, name="data")
    ComputeSession.objects.filter(pk=old.pk).update(
        status=Status.TERMINATED, created_at=timezone.now() - timedelta(days=1)
    )
    ended = batch(cast, name="data")
    ComputeSession.objects.filter(pk=ended.pk).update(status=Status.TERMINATED, result=Result.SUCCESS)
    assert list(batch(cast, depends_on=["data"]).depends_on.all()) == [ended]
    live = batch(cast, name="data")
    ComputeSession.objects.filter(pk=live.pk).update(created_at=timezone.now() - timedelta(days=2))
    assert list(batch(cast, depends_on=["data"]).depends_on.all()) == [live]


@pytest.mark.parametrize("kind", ["name", "id"])
def test_a_session_of_somebody_else_is_as_unknown_as_one_that_is_not_there(cast: Cast, kind: str) -> None:
    bobs = make_session(cast.bob, name="bobs")
    wanted = bobs.name if kind == "name" else str(bobs.pk)
    error = refusal(cast, session_type="batch", startup_command="true", depends_on=[wanted])
    assert (error.field, error.code) == ("depends_on", "unknown-depends-on")
    assert error.message == f"You have no session {wanted!r}."


def test_it_does_not_wait_for_what_cannot_end_well(cast: Cast) -> None:
    make_session(cast.alice, name="notebook")
    failed = batch(cast, name="failed")
    ComputeSession.objects.filter(pk=failed.pk).update(status=Status.TERMINATED, result=Result.FAILED)
    for name, why in (("notebook", "interactive"), ("failed", "has ended without success")):
        error = refusal(cast, session_type="batch", startup_command="true", depends_on=[name])
        assert (error.field, error.code) == ("depends_on", "dependency-cannot-succeed")
        assert why in error.message


def test_a_session_cannot_wait_for_itself(cast: Cast) -> None:
    error = refusal(cast, session_type="batch", startup_command="true", name="loop", depends_on=["loop"])
    assert (error.field, error.code) == ("depends_on", "depends-on-itself")


def test_only_batch_sessions_wait_for_others_and_not_for_too_many(cast: Cast) -> None:
    first = batch(cast)
    assert refusal(cast, depends_on=[first.name]).code == "batch-only"
    error = refusal(cast, session_type="batch", startup_command="true", depends_on=[first.name] * 101)
    assert (error.code, error.details["limit"]) == ("too-many", 100)
    assert "101" in error.message


def test_designated_agents_are_kept_by_id_however_they_were_named(cast: Cast) -> None:
    one, two = make_agent("node-1"), make_agent("node-2")
    session = make_session(cast.alice, agents=["node-1", str(two.pk), str(one.pk)])
    assert session.designated_agents == [str(one.pk), str(two.pk)]
    assert make_session(cast.alice).designated_agents == []


def test_an_agent_of_another_group_is_unknown(cast: Cast) -> None:
    make_agent("node-1")
    make_agent("far", group=make_group("other"))
    for wanted in ("far", "nowhere", str(uuid.uuid4())):
        error = refusal(cast, agents=["node-1", wanted], resource_group="default")
        assert (error.field, error.code) == ("agents", "unknown-agents")
        assert error.message == f"Resource group default has no agent {wanted!r}."


def test_what_the_designated_agents_could_never_give_is_refused(cast: Cast) -> None:
    make_agent("small", cpu=2)
    make_agent("large", cpu=16)
    assert make_session(cast.alice, resources={"cpu": 8, "mem": "1g"}, agents=["large"])
    error = refusal(cast, resources={"cpu": 8, "mem": "1g"}, agents=["small"])
    assert (error.field, error.code) == ("resources.cpu", "bigger-than-any-agent")
    assert error.message == "8 CPU cores requested, but no designated agent of default has more than 2."


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"cpu": 16}, "16 CPU cores requested, but no machine of an agent of default has more than 12."),
        (
            {"cpu": 12, "mem": "8g"},
            "No single machine of an agent of default has all of 12 CPU cores, 8 GiB of memory.",
        ),
    ],
)
def test_a_kernel_wider_than_any_machine_behind_an_agent_is_refused_and_several_are_not(
    cast: Cast, wanted: dict[str, Any], message: str
) -> None:
    """A pool of Kubernetes has more in all than one kernel can have."""
    pool = make_agent("pool", cpu=64, mem="256g")
    pool.widest = [{"cpu": "12", "mem": str(4 * 2**30)}, {"cpu": "8", "mem": str(64 * 2**30)}]
    pool.save()
    error = refusal(cast, resources={"mem": "1g"} | wanted)
    assert (error.code, error.message) == ("bigger-than-any-agent", message)
    assert make_session(cast.alice, resources={"cpu": 8, "mem": "8g"}, cluster_size=2)


def test_sessions_of_one_launch_share_its_id_and_every_session_has_one(cast: Cast) -> None:
    launch = uuid.uuid4()
    both = [make_session(cast.alice, launch_id=launch, placement="spread") for _ in range(2)]
    assert [(session.launch_id, session.placement) for session in both] == [(launch, "spread")] * 2
    alone, other = make_session(cast.alice), make_session(cast.alice)
    assert alone.launch_id and other.launch_id and alone.launch_id != other.launch_id


def test_an_unknown_placement_is_refused(cast: Cast) -> None:
    error = refusal(cast, placement="sideways")
    assert (error.field, error.code) == ("placement", "invalid-placement")
    assert "spread or pack" in error.message


def test_a_group_takes_only_the_session_types_it_allows(cast: Cast) -> None:
    make_group("batch-only", allowed_session_types=["batch"])
    assert batch(cast, resource_group="batch-only")
    error = refusal(cast, resource_group="batch-only")
    assert (error.field, error.code) == ("type", "session-type-not-allowed")
    assert error.message == "Resource group batch-only takes no interactive sessions; it takes: batch."


def test_a_repeated_key_with_other_wishes_is_another_request(cast: Cast) -> None:
    make_group()
    make_image()
    spec = {"image": "python", "name": "the-one"}
    first = create_session(cast.alice, SessionSpec(**spec), idempotency_key="k")
    assert create_session(cast.alice, SessionSpec(**spec, priority=None), idempotency_key="k") == first
    for wish in ({"priority": 0}, {"agents": ("x",)}, {"placement": "pack"}, {"launch_id": uuid.uuid4()}):
        with pytest.raises(Conflict) as caught:
            create_session(cast.alice, SessionSpec(**spec, **wish), idempotency_key="k")
        assert caught.value.code == "idempotency-key-reused"


def test_a_key_of_an_earlier_release_finds_its_session(cast: Cast) -> None:
    make_group()
    make_image()
    spec = SessionSpec(image="python", name="the-one")
    session = create_session(cast.alice, spec, idempotency_key="k")
    ComputeSession.objects.update(spec={}, request_digest="of another release")
    assert create_session(cast.alice, spec, idempotency_key="k") == session
