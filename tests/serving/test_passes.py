"""Endpoints from their creation to their end, through the real passes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.auditing import World as AuditWorld
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import LIVE
from backendai.domain.serving.endpoint_table import read_table
from backendai.domain.serving.models import DesiredState, Endpoint, ProxyReading, Revision, State
from backendai.domain.serving.moves import set_desired
from backendai.domain.serving.presentation import shown
from backendai.domain.serving.reading import read_endpoints
from backendai.domain.serving.services.endpoints import (
    change_endpoint,
    roll_back,
    set_wish,
    update_endpoint,
)
from backendai.domain.serving.services.readings import delete_old_readings, note_wake
from backendai.domain.serving.services.tokens import create_token
from backendai.ops.management.commands.audit import run_checks
from backendai.portal.loops.loops import run_serving
from backendai.scheduler.serving.health import Health
from tests.cast import Cast
from tests.factories import make_agent
from tests.serving.world import World, a_revision, codes_of, make_endpoint, states_of

pytestmark = pytest.mark.django_db


def fresh(endpoint: Endpoint) -> Endpoint:
    return Endpoint.objects.select_related("current", "next").get(pk=endpoint.pk)


def all_ready(endpoint: Endpoint, number: int) -> bool:
    return [state for _, _, state in states_of(endpoint)] == [State.READY] * number


def test_a_new_endpoint_starts_its_replicas_as_sessions_of_its_owner(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=2, maximum=3), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 2))
    session = endpoint.replicas.first().session
    assert (session.owner, session.session_type) == (cast.alice, "inference")
    assert session.startup_command == "serve --port 8000"
    assert session.environ["PORT"] == "8000"


def test_a_replica_that_its_owner_terminates_is_replaced(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    terminate_session(endpoint.replicas.get().session, cast.alice)
    world.until(lambda: states_of(endpoint) == [(2, 1, State.READY)])
    assert fresh(endpoint).current.failed_starts == 0


def test_a_start_is_no_loss_of_a_replica(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, maximum=3), World(cast.alice)
    seen: list[str] = []

    def shows(health: Health) -> bool:
        seen.append(shown([endpoint], world.now)[0].health)
        return seen[-1] == health

    world.until(lambda: shows(Health.SERVING))
    change_endpoint(fresh(endpoint), cast.alice, minimum=3)
    world.until(lambda: shows(Health.SCALING_UP))
    world.until(lambda: shows(Health.SERVING))
    assert set(seen) == {Health.STARTING, Health.SCALING_UP, Health.SERVING}
    terminate_session(endpoint.replicas.first().session, cast.alice)
    world.until(lambda: shows(Health.DEGRADED))
    world.until(lambda: shows(Health.SERVING))
    assert seen.count(Health.DEGRADED) > 1 and Health.SCALING_UP not in seen[seen.index(Health.DEGRADED) :]


def test_a_program_that_ends_backs_off_and_says_why(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, broken={1})
    world.until(lambda: Revision.objects.get().failed_starts >= 3)
    assert "start-backoff" in codes_of(endpoint)
    started = endpoint.replicas.count()
    world.steps(5)  # the third failure waits for 40 s
    assert endpoint.replicas.count() == started
    world.broken = set()
    world.until(lambda: all_ready(endpoint, 1))
    assert Revision.objects.get().failed_starts == 0


@pytest.mark.ci
def test_load_raises_and_quiet_lowers_the_number(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, maximum=3), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    world.open, world.each_second = 11, 5.5
    world.until(lambda: all_ready(endpoint, 3))
    assert fresh(endpoint).desired == 3
    world.open, world.each_second = 0, 0
    world.until(lambda: all_ready(endpoint, 1), most=400)
    assert "load-fell" in codes_of(endpoint)


def test_zero_and_awake_again(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=0, asleep_after=20), World(cast.alice)
    world.open = 1
    world.until(lambda: all_ready(endpoint, 1))
    world.open = 0
    world.until(lambda: states_of(endpoint) == [])
    assert "fell-asleep" in codes_of(endpoint)
    world.open = 1
    world.until(lambda: all_ready(endpoint, 1))


def test_a_silent_replica_is_replaced_and_one_proxy_alone_decides_nothing(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    world.silent = {1}
    world.until(lambda: states_of(endpoint) == [(2, 1, State.READY)])
    assert "another replica serves in its place" in endpoint.records.get(code="not-answering").message


def test_no_proxy_heard_replaces_nothing(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    world.proxies = []
    world.steps(60)
    assert states_of(endpoint) == [(1, 1, State.READY)]


def test_a_drain_waits_for_the_word_of_the_proxies(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=2, maximum=2), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 2))
    world.knows_drains = False
    change_endpoint(endpoint, cast.alice, minimum=1, maximum=1)
    world.steps(20)
    assert [state for _, _, state in states_of(endpoint)] == [State.READY, State.DRAINING]
    world.knows_drains = True
    world.until(lambda: all_ready(endpoint, 1))


def test_an_update_replaces_one_by_one_and_becomes_current(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=2, maximum=2), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 2))
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --better"))
    while fresh(endpoint).next_id:
        world.steps()
        serving = [one for one in states_of(endpoint) if one[2] == State.READY]
        assert len(serving) >= 2
    assert fresh(endpoint).current.number == 2
    world.until(lambda: all_ready(endpoint, 2))
    assert {revision for _, revision, _ in states_of(endpoint)} == {2}


def test_a_broken_revision_rolls_back_by_itself(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, broken={2})
    world.until(lambda: all_ready(endpoint, 1))
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --broken"))
    world.until(lambda: fresh(endpoint).next_id is None)
    assert "rolled-back" in codes_of(endpoint)
    world.until(lambda: states_of(endpoint) == [(1, 1, State.READY)])


def test_an_update_without_room_says_so_and_a_gap_helps(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, cpu=1)
    world.until(lambda: all_ready(endpoint, 1))
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --better"))
    world.until(lambda: "update-needs-room" in codes_of(endpoint))
    assert (1, 1, State.READY) in states_of(endpoint)
    change_endpoint(fresh(endpoint), cast.alice, max_unavailable=1)
    world.until(lambda: fresh(endpoint).next_id is None)
    assert fresh(endpoint).current.number == 2


@pytest.mark.ci
def test_an_earlier_revision_comes_back(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    update_endpoint(fresh(endpoint), cast.alice, a_revision(command="serve --better"))
    world.until(lambda: fresh(endpoint).next_id is None)
    roll_back(fresh(endpoint), cast.alice, 1)
    world.until(lambda: fresh(endpoint).next_id is None)
    assert fresh(endpoint).current.number == 1
    with pytest.raises(UserError, match="Revision 7 not found"):
        roll_back(fresh(endpoint), cast.alice, 7)


def test_stopped_deleted_and_nothing_is_left(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=2, maximum=2), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 2))
    set_wish(fresh(endpoint), cast.alice, DesiredState.STOPPED)
    world.until(lambda: states_of(endpoint) == [])
    set_wish(fresh(endpoint), cast.alice, DesiredState.RUN)
    world.until(lambda: all_ready(endpoint, 2))
    set_wish(fresh(endpoint), cast.alice, DesiredState.DELETED)
    world.until(lambda: states_of(endpoint) == [])
    world.steps(3)
    assert not ComputeSession.objects.filter(status__in=LIVE).exists()
    assert make_endpoint(cast.alice).name == endpoint.name  # the name is free again
    with pytest.raises(Conflict, match="deleted"):
        set_wish(fresh(endpoint), cast.alice, DesiredState.RUN)


def test_nothing_serves_for_an_owner_who_is_deactivated(cast: Cast) -> None:
    world, endpoint = World(cast.alice), make_endpoint(cast.alice)
    create_token(endpoint, cast.alice, "mine")
    world.until(lambda: [state for *_, state in states_of(endpoint)] == [State.READY])
    before = read_table(world.now)
    assert before.endpoints[endpoint.label].tokens and not before.endpoints[endpoint.label].is_stopped
    set_active(cast.dana.pk, cast.alice, False, now=world.now)
    after = read_table(world.now)
    assert after.sign != before.sign
    assert after.endpoints[endpoint.label].is_stopped and not after.endpoints[endpoint.label].tokens
    world.until(lambda: not states_of(endpoint))
    note_wake(endpoint.pk, now=world.now)
    assert Endpoint.objects.get().desired == 0
    with pytest.raises(Conflict, match="is deactivated"):
        set_wish(Endpoint.objects.get(), cast.dana, DesiredState.RUN)
    set_active(cast.dana.pk, cast.alice, True, now=world.now)
    world.until(lambda: [state for *_, state in states_of(endpoint)] == [State.READY])
    assert read_table(world.now).endpoints[endpoint.label].tokens


def test_a_waiting_replica_says_why_and_only_two_wait(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=6, maximum=6), World(cast.alice, cpu=2)
    world.until(lambda: "no-room" in codes_of(endpoint))
    world.steps(10)
    assert len(states_of(endpoint)) == 4


def test_what_cannot_be_is_refused_by_field(cast: Cast) -> None:
    for over, field in [
        ({"name": "Chat"}, "name"),
        ({"maximum": 0}, "maximum"),
        ({"minimum": 2, "maximum": 1}, "minimum"),
        ({"target": 0.0}, "target"),
        ({"is_public": True}, "is_public"),
        ({"max_surge": 0}, "max_surge"),
        ({"revision": a_revision(command=" ")}, "command"),
        ({"revision": a_revision(port=0)}, "port"),
        ({"revision": a_revision(probe_path="health")}, "probe_path"),
        ({"revision": a_revision(image="unheard-of")}, "image"),
    ]:
        with pytest.raises(UserError) as refused:
            make_endpoint(cast.alice, **({"name": "chat"} | over))
        assert refused.value.field == field


def test_a_name_is_taken_once(cast: Cast) -> None:
    make_endpoint(cast.alice)
    with pytest.raises(Conflict, match="named 'chat'"):
        make_endpoint(cast.bob)


def test_a_look_takes_the_same_number_of_queries_for_one_endpoint_and_for_many(cast: Cast) -> None:
    world = World(cast.alice, cpu=32)
    make_endpoint(cast.alice, "first")
    world.steps(5)
    with CaptureQueriesContext(connection) as few:
        read_endpoints(timezone.now())
    for number in range(5):
        make_endpoint(cast.alice, f"more-{number}", minimum=2, maximum=2)
    world.steps(5)
    with CaptureQueriesContext(connection) as many:
        read_endpoints(timezone.now())
    assert len(many) == len(few) <= 9


def test_a_plan_from_an_old_picture_changes_no_number(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, maximum=3), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    old = fresh(endpoint)
    change_endpoint(fresh(endpoint), cast.alice, maximum=2)
    assert not set_desired(old, 3, now=world.now, panic_until=None, code="load-grew")
    assert fresh(endpoint).desired == 1


def test_agents_that_reach_no_ports_are_left_out_or_named(cast: Cast) -> None:
    World(cast.alice)
    make_agent("native", backend="process")
    endpoint = make_endpoint(cast.alice)
    run_serving(timezone.now())
    able = Agent.objects.get(name="a1")
    assert endpoint.replicas.get().session.designated_agents == [str(able.pk)]
    able.delete()
    with pytest.raises(UserError, match="native processes") as refused:
        make_endpoint(cast.alice, "other")
    assert refused.value.code == "apps-impossible"


def test_readings_are_thinned_to_minutes_and_kept_for_a_week(cast: Cast) -> None:
    endpoint, now = make_endpoint(cast.alice), timezone.now().replace(second=0, microsecond=0)
    for seconds in (*range(0, 120, 2), 20 * 60, 20 * 60 + 2, 20 * 60 + 4, 8 * 86400):
        at = now - timedelta(seconds=seconds)
        ProxyReading.objects.create(proxy="p", boot="b", endpoint=endpoint, at=at, uptime=1e6 - seconds)
    assert delete_old_readings(now) == 2
    assert ProxyReading.objects.count() == 62


def test_the_audit_sees_a_replica_that_outlives_its_session_or_drains_for_ever(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: all_ready(endpoint, 1))
    late = AuditWorld(world.now + timedelta(hours=1))
    assert run_checks(late, ["S-01", "S-02", "S-03", "S-04"]) == {}
    replica = endpoint.replicas.get()
    endpoint.replicas.update(state=State.DRAINING, drain_by=world.now)
    Endpoint.objects.update(desired=5)
    assert set(run_checks(late, ["S-02", "S-03"])) == {"S-02", "S-03"}
    ComputeSession.objects.filter(pk=replica.session_id).update(status="TERMINATED", ended_at=world.now)
    assert "S-01" in run_checks(late, ["S-01"])
    endpoint.replicas.update(state=State.ENDED)
    ComputeSession.objects.filter(pk=replica.session_id).update(status="RUNNING")
    assert "S-01" in run_checks(late, ["S-01"])


@pytest.mark.ci
def test_short_requests_that_are_never_open_when_a_proxy_reports_keep_an_endpoint_awake(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=0, maximum=1, asleep_after=30.0), World(cast.alice)
    note_wake(endpoint.pk, now=world.now)
    assert "woken" in codes_of(endpoint)
    world.each_second = 0.5
    world.steps(60)
    endpoint.refresh_from_db()
    assert endpoint.desired == 1
    world.each_second = 0.0
    world.until(lambda: codes_of(endpoint)[-1] == "fell-asleep", most=30)
    assert "for 30 s" in endpoint.records.order_by("pk").last().message
