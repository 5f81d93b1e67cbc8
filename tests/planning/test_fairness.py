"""What fair strategies get: weights, and past use that fades."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import isclose, log
from typing import Any

import pytest

from backendai.base.core.slots import Slots
from backendai.domain.planning.snapshot import read_past_usage, read_weights
from backendai.domain.usage.models import UsageBucket
from backendai.scheduler.snapshot import Holder
from tests.cast import Cast
from tests.factories import make_group

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
DAY = 86_400
CAPACITY = Slots.parse({"cpu": 10, "mem": "100g"})


def holder_of(user: Any, project: Any) -> Holder:
    return Holder(user=f"user:{user.pk}", project=f"project:{project.pk}", domain=f"domain:{project.domain_id}")


def bucket(user: Any, project: Any, days_ago: int, amount: float, slot: str = "cpu", group: str = "default") -> None:
    UsageBucket.objects.create(
        resource_group=make_group(group), user=user, project=project, domain=project.domain,
        day=NOW.date() - timedelta(days=days_ago), slot=slot, amount_seconds=amount,
    )  # fmt: skip


def past(*holders: Holder, half_life: int = 1, capacity: Slots = CAPACITY) -> dict[str, float]:
    group = make_group()
    group.usage_half_life = timedelta(days=half_life)
    group.save()
    return read_past_usage(group, holders, capacity, NOW)


def test_weights_other_than_one_are_read_in_three_queries(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    for holder, weight in ((cast.alice, 3.0), (cast.project, 0.5), (cast.charlie, 9.0)):
        holder.share_weight = weight
        holder.save()
    alice, bob = holder_of(cast.alice, cast.project), holder_of(cast.bob, cast.project)
    with django_assert_num_queries(3):
        assert read_weights([alice, bob, Holder()]) == {alice.user: 3.0, alice.project: 0.5}


def test_use_counts_for_user_project_and_domain_as_a_share_of_capacity_and_time(cast: Cast) -> None:
    bucket(cast.alice, cast.project, 1, 10 * DAY)  # all the cores for a whole day, a day ago
    alice, bob = holder_of(cast.alice, cast.project), holder_of(cast.bob, cast.project)
    shares = past(alice, bob)
    # Its middle is a day old: half of it counts, over four days, and memory (unused) makes it half again.
    assert shares == {alice.user: 0.5 / 4 / 2, alice.project: 0.5 / 4 / 2, alice.domain: 0.5 / 4 / 2}


def test_use_of_many_people_adds_up_in_their_project(cast: Cast) -> None:
    bucket(cast.alice, cast.project, 1, 4 * DAY)
    bucket(cast.bob, cast.project, 1, 6 * DAY)
    bucket(cast.bob, cast.project, 1, CAPACITY["mem"] / 1000 * DAY, slot="mem")
    bucket(cast.charlie, cast.elsewhere, 1, 5 * DAY)
    alice, bob = holder_of(cast.alice, cast.project), holder_of(cast.bob, cast.project)
    shares = past(alice, bob)
    assert isclose(shares[alice.user], 0.4 / 16)
    assert isclose(shares[bob.user], (0.6 + 1.0) / 16)
    assert isclose(shares[alice.project], 2.0 / 16)
    assert set(shares) == {alice.user, bob.user, alice.project, alice.domain}


def test_use_fades_by_half_with_each_half_life_and_is_gone_after_four(cast: Cast) -> None:
    alice = holder_of(cast.alice, cast.project)
    shares = []
    for days_ago in (2, 4, 6):
        UsageBucket.objects.all().delete()
        bucket(cast.alice, cast.project, days_ago, DAY)
        shares.append(past(alice, half_life=2)[alice.user])
    assert isclose(shares[0], 2 * shares[1]) and isclose(shares[1], 2 * shares[2])
    UsageBucket.objects.all().delete()
    bucket(cast.alice, cast.project, 9, DAY)
    assert past(alice, half_life=2) == {}


def test_todays_use_counts_almost_whole(cast: Cast) -> None:
    alice = holder_of(cast.alice, cast.project)
    bucket(cast.alice, cast.project, 0, 10 * DAY / 2)  # all the cores since midnight: on average six hours ago
    assert isclose(past(alice)[alice.user], 0.5 ** (6 / 24) * 0.5 / 4 / 2)


def test_who_holds_everything_all_the_time_comes_to_the_integral_of_the_fading(cast: Cast) -> None:
    alice = holder_of(cast.alice, cast.project)
    for days_ago in range(41):
        seconds = DAY / 2 if days_ago == 0 else DAY
        bucket(cast.alice, cast.project, days_ago, 10 * seconds)
        bucket(cast.alice, cast.project, days_ago, CAPACITY["mem"] / 1000 * seconds, slot="mem")
    exact = (1 - 0.5**4) / (4 * log(2))
    assert isclose(past(alice, half_life=10)[alice.user], exact, rel_tol=0.01)


def test_use_of_another_group_or_of_slots_that_are_gone_does_not_count(cast: Cast) -> None:
    alice = holder_of(cast.alice, cast.project)
    bucket(cast.alice, cast.project, 1, 10 * DAY, group="far")
    bucket(cast.alice, cast.project, 1, 10 * DAY, slot="cuda.device")
    assert past(alice) == {}
    assert past(alice, capacity=Slots()) == {}


def test_past_use_is_one_query_however_much_there_is(cast: Cast, django_assert_num_queries: Callable[..., Any]) -> None:
    for days_ago in range(28):
        for user in (cast.alice, cast.bob, cast.dana):
            bucket(user, cast.project, days_ago, 1.0)
    group, holders = make_group(), [holder_of(cast.alice, cast.project), holder_of(cast.bob, cast.project)]
    with django_assert_num_queries(1):
        assert len(read_past_usage(group, holders, CAPACITY, NOW)) == 4
    with django_assert_num_queries(0):
        assert read_past_usage(group, [], CAPACITY, NOW) == {}
