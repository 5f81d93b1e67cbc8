"""Limits of policies at their two doors: what may wait, checked at the launch, and what is held, at the placement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.accounts.policies.applicable import limited_holders
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.requests.limits import limit_views, recheck
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import Phase
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session, place

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def give(holder: Any, **limits: Any) -> ResourcePolicy:
    """Give the holder a policy of its own."""
    holder.policy = ResourcePolicy.objects.create(name=f"of {holder}", **limits)
    holder.save()
    return holder.policy


def refusal(owner: Any, **over: Any) -> Conflict:
    """Return the conflict with which a launch is refused; nothing of it stays."""
    sessions, entries = ComputeSession.objects.count(), AuditEntry.objects.count()
    with pytest.raises(Conflict) as caught:
        make_session(owner, **over)
    assert (ComputeSession.objects.count(), AuditEntry.objects.count()) == (sessions, entries)
    return caught.value


def test_as_many_sessions_wait_as_the_policy_allows_and_no_more(cast: Cast) -> None:
    give(cast.alice, max_pending_sessions=2)
    first, _ = make_session(cast.alice), make_session(cast.alice)
    error = refusal(cast.alice)
    assert error.code == "pending-limit"
    assert error.message == "2 sessions of user alice@example.com are already pending; at most 2 are allowed."
    assert dict(error.details) == {
        "scope": "user", "name": "alice@example.com", "what": "sessions", "number": 2, "limit": 2,
        "holder": "user alice@example.com",
    }  # fmt: skip
    end_sessions([first.pk], StatusCause(Phase.TERMINATE, "user-requested"), now=timezone.now())
    assert make_session(cast.alice)


def test_a_session_that_was_placed_waits_no_more(cast: Cast) -> None:
    give(cast.alice, max_pending_sessions=1)
    make_running_session(cast.alice, make_agent())
    assert make_session(cast.alice)
    assert refusal(cast.alice).code == "pending-limit"


def test_a_limit_of_nothing_lets_nothing_wait(cast: Cast) -> None:
    give(cast.alice, max_pending_sessions=0)
    assert refusal(cast.alice).details["number"] == 0


@pytest.mark.parametrize("scope", ["key-pair", "project", "domain"])
def test_every_scope_has_its_own_pending_limit(cast: Cast, scope: str) -> None:
    holder = {"key-pair": cast.alice.key_pairs.get(), "project": cast.project, "domain": cast.project.domain}[scope]
    give(holder, max_pending_sessions=1)
    make_session(cast.charlie)
    make_session(cast.alice)
    assert refusal(cast.alice).details["scope"] == scope
    if scope == "key-pair":
        assert make_session(cast.bob)
    else:
        assert refusal(cast.bob).details["scope"] == scope


def test_all_that_waits_together_is_limited_by_slot_kernels_counted(cast: Cast) -> None:
    give(cast.project, max_pending_slots={"cpu": 5, "mem": "4g"})
    make_session(cast.alice, resources={"cpu": 1, "mem": "512m"}, cluster_size=3)
    make_session(cast.bob, resources={"cpu": 1, "mem": "512m"})
    error = refusal(cast.alice, resources={"cpu": 2, "mem": "512m"})
    assert error.message == "With this session cpu 6 would wait for project vision, and at most 5 may."
    assert (error.details["what"], error.details["number"], error.details["limit"]) == ("cpu", "6", "5")
    error = refusal(cast.alice, resources={"cpu": 1, "mem": "3g"})
    assert error.message == "With this session mem 5 GiB would wait for project vision, and at most 4 GiB may."
    assert make_session(cast.alice, resources={"cpu": 1, "mem": "2g"})


def test_a_slot_that_may_not_wait_at_all_is_refused_and_an_unnamed_one_is_free(cast: Cast) -> None:
    give(cast.alice, max_pending_slots={"cuda.device": 0})
    assert make_session(cast.alice)
    assert refusal(cast.alice, resources={"cpu": 1, "mem": "512m", "cuda.device": 1}).details["what"] == "cuda.device"


def test_who_has_no_policy_pays_no_query_for_it(cast: Cast) -> None:
    make_session(cast.alice)
    make_session(cast.bob)
    give(cast.bob, max_pending_sessions=50, max_pending_slots={"cpu": 99})
    free, limited = statements_of_a_launch(cast.alice), statements_of_a_launch(cast.bob)
    words = ("UNION ALL", "resourcepolicy", "advisory", "COUNT")
    assert not [sql for sql in free if any(word in sql for word in words)]
    extra = len(limited) - len(free)
    assert extra == (4 if connection.vendor == "postgresql" else 2), "the policy, what waits, and two for the lock"


def statements_of_a_launch(owner: Any) -> list[str]:
    """Return the statements of one launch, without those that make the factory's rows."""
    with CaptureQueriesContext(connection) as queries:
        create_session(owner, SessionSpec(image="python", resources={"cpu": 1, "mem": "512m"}))
    return [query["sql"] for query in queries]


def test_limits_come_with_what_is_held_in_all_groups(cast: Cast, django_assert_num_queries: Callable[..., Any]) -> None:
    give(cast.alice, slots={"cpu": 8, "mem": "9g", "cuda.device": 0}, unnamed_slots="limited", max_sessions=3)
    give(cast.project.domain)
    here, there = make_agent(group=make_group("default")), make_agent(group=make_group("other"))
    make_running_session(cast.alice, here, resources={"cpu": 1, "mem": "1g"}, cluster_size=2)
    place(make_session(cast.alice, resource_group="other", resources={"cpu": "0.5", "mem": "512m"}), there)
    make_running_session(cast.bob, here, resources={"cpu": 1, "mem": "1g"})
    make_session(cast.alice)
    make_running_session(cast.charlie, there, resource_group="other")
    keys = [f"user:{cast.alice.pk}", f"domain:{cast.project.domain_id}", f"user:{cast.bob.pk}"]
    limited = limited_holders(keys)
    with django_assert_num_queries(2):
        views = limit_views(limited)
    assert set(views) == {keys[0], keys[1]}
    alice, domain = views[keys[0]], views[keys[1]]
    assert (alice.scope, alice.name, alice.max_sessions, alice.sessions) == ("user", "alice@example.com", 3, 2)
    assert alice.used == Slots.parse({"cpu": "2.5", "mem": "2560m"})
    assert (alice.slots, alice.forbidden) == (Slots.parse({"cpu": 8, "mem": "9g"}), {"cuda.device"})
    assert alice.unnamed_limited
    assert (domain.scope, domain.sessions, domain.unnamed_limited) == ("domain", 3, False)
    assert domain.used == Slots.parse({"cpu": "3.5", "mem": "3584m"})


def leave_out(*sessions: ComputeSession) -> list[str]:
    """Return the names of those that the recheck leaves out, in their order."""
    with transaction.atomic():
        left_out = recheck([session.pk for session in sessions])
    return [session.name for session in sessions if session.pk in left_out]


def test_the_recheck_leaves_out_what_exceeds_the_number_of_sessions(cast: Cast) -> None:
    give(cast.alice, max_sessions=2)
    make_running_session(cast.alice, make_agent())
    one, two = make_session(cast.alice, name="first"), make_session(cast.alice, name="second")
    bobs = make_session(cast.bob, name="bobs")
    assert leave_out(one, two, bobs) == ["second"]
    assert leave_out(bobs, two, one) == ["first"]


def test_the_recheck_leaves_out_what_exceeds_slots_and_takes_a_smaller_one_behind_it(cast: Cast) -> None:
    give(cast.project, slots={"cpu": 4})
    make_running_session(cast.bob, make_agent(), resources={"cpu": 1, "mem": "512m"})
    big = make_session(cast.alice, name="large", resources={"cpu": 2, "mem": "512m"}, cluster_size=2)
    small = make_session(cast.alice, name="small", resources={"cpu": 2, "mem": "512m"})
    last = make_session(cast.bob, name="last", resources={"cpu": 2, "mem": "512m"})
    assert leave_out(big, small, last) == ["large", "last"]


def test_the_recheck_knows_slots_of_which_nothing_may_be_had(cast: Cast) -> None:
    gpu = {"cpu": 1, "mem": "512m", "cuda.device": 1}
    plain = [make_session(cast.alice, name="plain-a"), make_session(cast.bob, name="plain-b")]
    greedy = [
        make_session(cast.alice, name="gpu-a", resources=gpu),
        make_session(cast.bob, name="gpu-b", resources=gpu),
    ]
    give(cast.alice, slots={"cpu": 4, "mem": "8g"}, unnamed_slots="limited")  # a launch would be refused from now on
    give(cast.bob, slots={"cuda.device": 0})
    assert leave_out(*plain, *greedy) == ["gpu-a", "gpu-b"]


def test_the_recheck_costs_two_queries_when_nobody_is_limited_and_few_when_many_are(
    cast: Cast, django_assert_num_queries: Callable[..., Any], django_assert_max_num_queries: Callable[..., Any]
) -> None:
    ids = [make_session(cast.alice).pk for _ in range(12)]
    with django_assert_num_queries(2):
        assert recheck(ids) == set()
    give(cast.alice, max_sessions=4)
    with django_assert_max_num_queries(8):
        assert len(recheck(ids)) == 8
    assert recheck([]) == set()
