"""What ends an update, and what does not prove a revision."""

from __future__ import annotations

import pytest

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.serving.models import DesiredState, Endpoint, State
from backendai.domain.serving.services.endpoints import change_endpoint, set_wish, update_endpoint
from tests.cast import Cast
from tests.serving.world import World, a_revision, codes_of, make_endpoint, states_of

pytestmark = pytest.mark.django_db


def fresh(endpoint: Endpoint) -> Endpoint:
    return Endpoint.objects.select_related("current", "next").get(pk=endpoint.pk)


def all_ready(endpoint: Endpoint, number: int) -> bool:
    return [state for _, _, state in states_of(endpoint)] == [State.READY] * number


def test_stopping_in_a_failing_update_adopts_nothing(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, broken={2})
    world.until(lambda: all_ready(endpoint, 1))
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --broken"))
    world.until(lambda: endpoint.replicas.count() == 2)
    set_wish(fresh(endpoint), cast.alice, DesiredState.STOPPED)
    world.until(lambda: states_of(endpoint) == [])
    world.steps(3)
    assert fresh(endpoint).current.number == 1
    assert "updated" not in codes_of(endpoint)
    set_wish(fresh(endpoint), cast.alice, DesiredState.RUN)
    world.until(lambda: states_of(endpoint) == [(endpoint.replicas.count(), 1, State.READY)])
    assert fresh(endpoint).next is None
    assert "rolled-back" in codes_of(endpoint)


def test_falling_asleep_within_the_proof_proves_nothing_and_the_next_wake_goes_on(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=0, asleep_after=20), World(cast.alice)
    world.open = 1
    world.until(lambda: all_ready(endpoint, 1))
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --better"))
    world.until(lambda: (2, 2, State.READY) in states_of(endpoint))
    world.open = 0
    world.until(lambda: states_of(endpoint) == [])
    world.steps(3)
    assert (fresh(endpoint).current.number, fresh(endpoint).next.number) == (1, 2)
    assert "update-rests" in codes_of(endpoint)
    world.open = 1
    world.until(lambda: fresh(endpoint).next is None)
    assert fresh(endpoint).current.number == 2


def test_an_update_of_a_sleeping_endpoint_is_proven_by_its_wake_or_rolled_back(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=0, asleep_after=20), World(cast.alice, broken={2})
    world.open = 1
    world.until(lambda: all_ready(endpoint, 1))
    world.open = 0
    world.until(lambda: states_of(endpoint) == [])
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --broken"))
    world.steps(3)
    assert fresh(endpoint).current.number == 1
    world.open = 1
    world.until(lambda: all_ready(endpoint, 1))
    assert (states_of(endpoint)[0][1], fresh(endpoint).next) == (1, None)


def test_a_launch_that_a_limit_refuses_for_now_is_no_failed_start(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, cpu=1)
    world.until(lambda: all_ready(endpoint, 1))
    cast.alice.policy = ResourcePolicy.objects.create(name="none waits", max_pending_sessions=0)
    cast.alice.save(update_fields=["policy"])
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --better"))
    world.steps(10)
    assert fresh(endpoint).next.failed_starts == 0
    assert "over-quota" in codes_of(endpoint)
    cast.alice.policy = None
    cast.alice.save(update_fields=["policy"])
    change_endpoint(fresh(endpoint), cast.alice, max_unavailable=1)
    world.until(lambda: fresh(endpoint).next is None)
    assert fresh(endpoint).current.number == 2


def test_a_replica_that_waits_for_a_limit_says_over_quota(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=2, maximum=2), World(cast.alice)
    cast.alice.policy = ResourcePolicy.objects.create(name="one runs", max_sessions=1)
    cast.alice.save(update_fields=["policy"])
    world.until(lambda: "over-quota" in codes_of(endpoint))
    assert "no-room" not in codes_of(endpoint)
