"""Which word a drain waits for, and which decisions come too late."""

from __future__ import annotations

import pytest

from backendai.domain.serving.models import DesiredState, Endpoint, State
from backendai.domain.serving.reading import read_endpoints
from backendai.domain.serving.services.acting import act
from backendai.domain.serving.services.endpoints import change_endpoint, set_wish, update_endpoint
from tests.cast import Cast
from tests.serving.world import World, a_revision, make_endpoint, states_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def fresh(endpoint: Endpoint) -> Endpoint:
    return Endpoint.objects.select_related("current", "next").get(pk=endpoint.pk)


def all_ready(endpoint: Endpoint, number: int) -> bool:
    return [state for _, _, state in states_of(endpoint)] == [State.READY] * number


def two_ready(cast: Cast, **over: object) -> tuple[Endpoint, World]:
    revision = a_revision(**over)
    endpoint = make_endpoint(cast.alice, revision=revision, minimum=2, maximum=2)
    world = World(cast.alice, proxies=["one", "two"])
    world.until(lambda: all_ready(endpoint, 2))
    return endpoint, world


def test_a_proxy_that_is_cut_off_from_the_database_is_waited_for(cast: Cast) -> None:
    endpoint, world = two_ready(cast)
    world.proxies = ["one"]
    world.steps(10)  # twenty seconds without a word of the other one
    change_endpoint(fresh(endpoint), cast.alice, minimum=1, maximum=1)
    world.steps(20)
    assert [state for _, _, state in states_of(endpoint)] == [State.READY, State.DRAINING]
    world.proxies = ["one", "two"]
    world.until(lambda: all_ready(endpoint, 1), most=5)


def test_only_the_deadline_overrules_a_silent_proxy_and_its_open_requests_are_told(cast: Cast) -> None:
    endpoint, world = two_ready(cast, drain_timeout=60.0)
    world.opened = {"two": 3}
    world.steps()
    world.proxies = ["one"]
    world.steps(10)
    change_endpoint(fresh(endpoint), cast.alice, minimum=1, maximum=1)
    world.until(lambda: State.DRAINING in [state for *_, state in states_of(endpoint)])
    drained = endpoint.replicas.get(state=State.DRAINING)
    world.until(lambda: all_ready(endpoint, 1), most=40)
    assert "3 requests were cut off" in endpoint.replicas.get(pk=drained.pk).session.status_message


def test_a_proxy_that_said_farewell_is_not_waited_for(cast: Cast) -> None:
    endpoint, world = two_ready(cast)
    world.farewell("two")
    change_endpoint(fresh(endpoint), cast.alice, minimum=1, maximum=1)
    world.until(lambda: all_ready(endpoint, 1), most=8)


def test_a_replica_that_is_loading_has_time_for_its_requests(cast: Cast) -> None:
    endpoint, world = two_ready(cast)
    world.silent = {3}
    change_endpoint(fresh(endpoint), cast.alice, minimum=3, maximum=3)
    world.until(lambda: (3, 1, State.LOADING) in states_of(endpoint))
    world.opened = {"one": 1}  # its own probe succeeded, and the control plane has not heard of it
    world.knows_drains = False
    change_endpoint(fresh(endpoint), cast.alice, minimum=2, maximum=2)
    world.steps(10)
    assert (3, 1, State.DRAINING) in states_of(endpoint)
    assert endpoint.replicas.get(number=3).reason == "scaled"
    world.opened, world.knows_drains = {}, True
    world.until(lambda: all_ready(endpoint, 2), most=8)


def test_an_old_plan_starts_and_drains_nothing(cast: Cast) -> None:
    endpoint, world = two_ready(cast)
    change_endpoint(fresh(endpoint), cast.alice, minimum=4, maximum=4)
    more = read_endpoints(world.now)
    set_wish(fresh(endpoint), cast.alice, DesiredState.STOPPED)
    less = read_endpoints(world.now)
    act(more)
    assert endpoint.replicas.count() == 2
    set_wish(fresh(endpoint), cast.alice, DesiredState.RUN)
    act(less)
    assert all_ready(endpoint, 2)


@pytest.mark.ci
def test_a_replica_says_why_it_goes(cast: Cast) -> None:
    endpoint, world = two_ready(cast)
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --better"))
    world.until(lambda: fresh(endpoint).next_id is None)
    told = set(endpoint.replicas.filter(revision__number=1).values_list("reason", flat=True))
    assert told == {"replaced"}
    set_wish(fresh(endpoint), cast.alice, DesiredState.STOPPED)
    world.until(lambda: states_of(endpoint) == [])
    told = set(endpoint.replicas.filter(revision__number=2).values_list("reason", flat=True))
    assert told == {"endpoint-stopped"}
