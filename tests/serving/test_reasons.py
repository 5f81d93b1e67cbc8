"""What holds an endpoint up is recorded once, and told to those who wait."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.serving import endpoint_table
from backendai.domain.serving.models import DesiredState, Endpoint, State
from backendai.domain.serving.presentation import shown
from backendai.portal.loops.loops import run_serving
from tests.cast import Cast
from tests.factories import make_session
from tests.serving.world import World, codes_of, make_endpoint, states_of

pytestmark = pytest.mark.django_db


def entry(endpoint: Endpoint) -> endpoint_table.EndpointEntry:
    return endpoint_table.read_table(timezone.now()).endpoints[endpoint.label]


def test_a_limit_that_the_load_meets_is_recorded_once_with_the_change_that_helps(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=0, maximum=1), World(cast.alice)
    world.open = 20
    world.until(lambda: "at-max" in codes_of(endpoint))
    world.steps(5)
    record = endpoint.records.get(code="at-max")
    assert (record.attempts, record.data["change"]) == (1, {"maximum": 2})


def test_an_endpoint_tells_what_its_first_replica_answers_to_probes(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, silent={1})
    world.until(lambda: states_of(endpoint) == [(1, 1, State.LOADING)])
    world.steps(2)
    [summary] = shown([endpoint], world.now)
    assert (summary.reason.code, str(summary.reason.message)) == (
        "probe-failed",
        "Replica 1 is not ready. 503 of /health",
    )
    Endpoint.objects.update(wish=DesiredState.STOPPED)
    [summary] = shown([endpoint], world.now)
    assert summary.reason.code == "paused", "its replica, which is still there, does not matter"
    Endpoint.objects.update(wish=DesiredState.RUN)
    world.silent.clear()
    world.until(lambda: states_of(endpoint) == [(1, 1, State.READY)])
    [summary] = shown([endpoint], world.now)
    assert summary.reason.code != "probe-failed"


def test_proxies_that_say_nothing_are_recorded_once(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, maximum=2), World(cast.alice)
    world.until(lambda: states_of(endpoint) == [(1, 1, State.READY)])
    world.proxies = []
    world.until(lambda: "blind" in codes_of(endpoint), most=40)
    world.steps(5)
    assert codes_of(endpoint).count("blind") == 1


def test_a_launch_that_a_limit_refuses_is_recorded_once_while_it_lasts(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="none waits", max_pending_sessions=0)
    cast.alice.save(update_fields=["policy"])
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: "over-quota" in codes_of(endpoint))
    world.steps(5)
    record = endpoint.records.get(code="over-quota")
    assert (record.attempts, "could not be launched" in record.message) == (1, True)
    assert entry(endpoint).is_blocked
    ResourcePolicy.objects.update(max_pending_sessions=None)
    world.until(lambda: [state for *_, state in states_of(endpoint)] == [State.READY])
    assert not entry(endpoint).is_blocked


def test_a_launch_that_a_limit_refuses_changes_nothing_that_app_proxies_read(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="none waits", max_pending_sessions=0)
    cast.alice.save(update_fields=["policy"])
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: "over-quota" in codes_of(endpoint))
    before, passes = endpoint_table.read_sign(), []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            run_serving(world.now)
        passes.append([one["sql"] for one in queries])
    assert endpoint_table.read_sign() == before
    assert len(passes[0]) == len(passes[1]) < 50
    assert not [sql for sql in passes[1] if sql.startswith(('UPDATE "serving_', 'INSERT INTO "serving_'))]


def test_a_name_that_its_owner_has_taken_is_passed_over(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    make_session(cast.alice, name=f"{endpoint.name}-{endpoint.pk.hex[:6]}-1")
    world.until(lambda: [state for *_, state in states_of(endpoint)] == [State.READY])
    assert (endpoint.replicas.get().number, endpoint.revisions.get().failed_starts) == (2, 0)


def test_the_book_says_when_waiting_is_no_use_and_how_long_a_start_takes(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=0, maximum=1), World(cast.alice, broken={1})
    world.open = 1
    world.until(lambda: "start-backoff" in codes_of(endpoint))
    assert entry(endpoint).is_blocked
    assert "1 start of" in entry(endpoint).why_none
    assert endpoint.records.get(code="start-backoff").data["until"]
    world.broken = set()
    world.until(lambda: endpoint.replicas.filter(state=State.LOADING).exists())
    assert not entry(endpoint).is_blocked
    world.until(lambda: states_of(endpoint)[0][2] == State.READY)
    endpoint.replicas.filter(state=State.READY).update(state=State.ENDED)
    assert entry(endpoint).usual_start > 0
