"""Limits as the scheduler gets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.planning.snapshot import read_limits
from backendai.scheduler.snapshot import Holder
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session

pytestmark = pytest.mark.django_db


def holder_of(user: Any, project: Any) -> Holder:
    return Holder(
        user=f"user:{user.pk}",
        key_pair=f"key-pair:{user.key_pairs.get().access_key}",
        project=f"project:{project.pk}",
        domain=f"domain:{project.domain_id}",
    )


def give(holder: Any, **limits: Any) -> None:
    holder.policy = ResourcePolicy.objects.create(name=f"of {holder}", **limits)
    holder.save()


def test_nobody_is_limited_where_there_are_no_policies(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    make_running_session(cast.alice)
    holders = [holder_of(cast.alice, cast.project), holder_of(cast.bob, cast.project), Holder()]
    with django_assert_num_queries(1):
        assert read_limits(holders) == {}
    assert read_limits([]) == {}


def test_those_with_a_policy_and_only_those_get_their_limits_in_four_queries_however_many_they_are(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    alice, bob = holder_of(cast.alice, cast.project), holder_of(cast.bob, cast.project)
    give(cast.alice.key_pairs.get(), slots={"cpu": 4, "mem": "4g"}, unnamed_slots="limited")
    with django_assert_num_queries(4):
        assert set(read_limits([alice, bob])) == {alice.key_pair}
    give(cast.bob, max_sessions=2)
    give(cast.project, slots={"cpu": 9, "cuda.device": 0}, max_sessions=7)
    give(cast.project.domain)
    give(cast.charlie, max_sessions=1)
    agent, far = make_agent(), make_agent(group=make_group("far"))
    for _ in range(2):
        make_running_session(cast.alice, agent, resources={"cpu": 1, "mem": "512m"})
    make_running_session(cast.bob, far, resource_group="far", resources={"cpu": "0.5", "mem": "512m"})
    make_session(cast.bob)
    with django_assert_num_queries(4):
        limits = read_limits([alice, alice, bob])
    assert set(limits) == {alice.key_pair, bob.user, alice.project, alice.domain}
    key_pair, project = limits[alice.key_pair], limits[alice.project]
    assert (key_pair.scope, key_pair.unnamed_limited, key_pair.sessions) == ("key-pair", True, 2)
    assert key_pair.used == Slots.parse({"cpu": 2, "mem": "1g"})
    assert (limits[bob.user].max_sessions, limits[bob.user].sessions) == (2, 1)
    assert (project.name, project.max_sessions, project.sessions) == ("vision", 7, 3)
    assert (project.slots, project.forbidden) == (Slots.parse({"cpu": 9}), {"cuda.device"})
    assert project.used == limits[alice.domain].used == Slots.parse({"cpu": "2.5", "mem": "1536m"})
