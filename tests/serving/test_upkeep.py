"""What an endpoint keeps, what it tells its owner, and replicas whose time runs out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.activity.notices import choose
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.serving import endpoint_table
from backendai.domain.serving.models import EndpointNotice, Replica, ScalingRecord, State
from backendai.domain.serving.services.notices import ENDPOINTS, tell_owner
from backendai.domain.serving.services.readings import ProxyCounts, record
from backendai.domain.serving.services.unused import delete_ended_replicas, delete_old_records, tell_of_unused
from backendai.portal.loops.mail_texts import endpoint_mail
from backendai.portal.web.news.bell import counts_of, lines_of
from tests.cast import Cast
from tests.serving.world import World, a_revision, make_endpoint, states_of

pytestmark = pytest.mark.django_db


def test_a_replica_at_the_end_of_its_longest_time_has_a_substitute_before(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="short", max_session_lifetime=timedelta(minutes=3))
    cast.alice.save(update_fields=["policy"])
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: states_of(endpoint) == [(1, 1, State.READY)])
    for _ in range(75):  # two and a half minutes
        world.steps()
        assert State.READY in [state for *_, state in states_of(endpoint)]
        if endpoint.replicas.get(number=1).state == State.ENDED:
            break
    first = endpoint.replicas.get(number=1)
    assert (first.state, first.reason) == (State.ENDED, "moved")


def test_old_decisions_and_replicas_are_deleted(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice)
    world.until(lambda: states_of(endpoint) == [(1, 1, State.READY)])
    late = timezone.now() + timedelta(days=91)
    assert delete_ended_replicas(late) == 0
    Replica.objects.update(state=State.ENDED, ended_at=world.now)
    number = ScalingRecord.objects.count()
    assert delete_old_records(timezone.now()) == 0
    assert delete_old_records(late) == number > 0
    assert delete_ended_replicas(late) == 1
    assert ComputeSession.objects.exists()


def test_owners_are_told_of_the_endpoint_and_not_of_each_replica(cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, minimum=2, maximum=2), World(cast.alice, broken={1})
    world.until(lambda: endpoint.replicas.filter(state=State.ENDED).count() >= 2)
    assert not SessionNotice.objects.exists()
    world.until(lambda: EndpointNotice.objects.exists())
    notice = EndpointNotice.objects.get()
    assert (notice.kind, notice.owner) == ("backing-off", cast.alice)


def test_a_notification_follows_the_choices_for_sessions_and_is_mailed_once(cast: Cast, settings: Any) -> None:
    settings.EMAIL_URL, settings.PORTAL_URL = "smtp://mail.example.org", "https://lab.example.org"
    endpoint, told = make_endpoint(cast.alice), Message("It is being replaced.")
    tell_owner(endpoint, EndpointNotice.Kind.UNAVAILABLE, told, now=timezone.now())
    assert counts_of(cast.alice)["unseen"] == 1 == len(lines_of(cast.alice))
    assert not ENDPOINTS.has_mails(timezone.now())
    choose(cast.alice, {"failed": {"bell": False, "email": True}})
    assert counts_of(cast.alice)["unseen"] == 0 == len(lines_of(cast.alice))
    assert ENDPOINTS.has_mails(timezone.now())
    assert [ENDPOINTS.send_mails(timezone.now, endpoint_mail) for _ in range(2)] == [1, 0]
    [sent] = mail.outbox
    assert (sent.to, sent.subject) == (["alice@example.com"], "chat: no replica answers")
    assert told in sent.body and f"https://lab.example.org/endpoints/{endpoint.pk}/" in sent.body
    tell_owner(endpoint, EndpointNotice.Kind.UNAVAILABLE, told, now=timezone.now() + timedelta(days=2))
    assert ENDPOINTS.has_mails(timezone.now()), "it happened once more"


def test_accelerators_without_requests_for_days_are_told_with_the_next_step_once_a_week(cast: Cast) -> None:
    gpu, slept = {"cpu": 1, "mem": "512m", "cuda.device": 1}, timedelta(days=3, hours=1)
    idle = make_endpoint(cast.alice, "idle", revision=a_revision(resources=gpu), minimum=2, maximum=2)
    asked = make_endpoint(cast.alice, "asked", revision=a_revision(resources=gpu))
    make_endpoint(cast.alice, "small")
    world = World(cast.alice)
    Agent.objects.update(capacity=world.agent.capacity | {"cuda.device": "4"})
    world.until(lambda: Replica.objects.filter(state=State.READY).count() == 4)
    assert not tell_of_unused(world.now + timedelta(days=2)) and not EndpointNotice.objects.exists()
    counted = ProxyCounts(asked.pk, 1, requests=10**6)
    record("one", "boot", 1.0, [counted], [], now=world.now + timedelta(days=2))
    for days in (0, 3, 6):
        tell_of_unused(world.now + slept + timedelta(days=days))
    (notice,) = EndpointNotice.objects.exclude(endpoint=asked)
    assert (notice.endpoint, notice.created_at) == (idle, world.now + slept)
    assert "3 days" in notice.message and "2 GPUs" in notice.message and "minimum of 0" in notice.message


def test_the_book_says_the_newest_reason(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    for text in ("first", "second"):
        ScalingRecord.objects.create(endpoint=endpoint, code=text, message=text)
    assert endpoint_table.read_table(timezone.now()).endpoints[endpoint.label].why_none == "second"
