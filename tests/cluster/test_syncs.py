"""What the portal keeps of what a node says about itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from pydantic import ValidationError

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import KernelReport, Note, SyncUp
from backendai.domain.cluster.models import Agent, SlotType
from backendai.domain.cluster.services import mark_lost, record_sync, record_syncs
from backendai.domain.cluster.slot_types import change_slot_type, check_steps
from backendai.portal.agents.views import is_too_much
from tests.cast import Cast
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
CAPACITY = {"cpu": "4", "mem": str(8 * 2**30), "cuda.device": "1"}
DEVICES = {"cuda.device": ["GPU-0"]}
DEAD_ENGINE = Note(code="engine-unreachable", message="It does not answer.")


def said(**over: Any) -> SyncUp:
    words = {"boot_id": "b", "version": "1", "backend": "docker", "architecture": "x86_64", "gateway_url": ""}
    return SyncUp(**(words | {"capacity": CAPACITY, "devices": DEVICES} | over))


def one(agent: Agent, up: SyncUp) -> bool:
    return record_sync(agent, up, now=timezone.now())


def many(agent: Agent, up: SyncUp) -> bool:
    news, refused = record_syncs([(agent, up)], now=timezone.now())
    assert not refused
    return agent.pk in news


ways = pytest.mark.parametrize("record", [one, many])


@ways
def test_a_node_whose_engine_does_not_answer_keeps_what_it_is_known_to_have(
    record: Callable[[Agent, SyncUp], bool],
) -> None:
    agent = make_agent(capacity=CAPACITY, devices=DEVICES)
    assert record(agent, said(capacity={}, devices={}, draining=True, notes=[DEAD_ENGINE]))
    agent.refresh_from_db()
    assert (agent.status, agent.capacity, agent.devices) == (Agent.Status.DRAINING, CAPACITY, DEVICES)
    assert not record(agent, said(capacity={}, devices={}, draining=True, notes=[DEAD_ENGINE]))
    agent.refresh_from_db()
    assert record(agent, said(capacity={"cpu": "2"}))
    agent.refresh_from_db()
    assert (agent.status, agent.capacity) == (Agent.Status.ALIVE, {"cpu": "2"})


def test_a_capacity_that_is_none_is_refused_whatever_the_engine_does() -> None:
    with pytest.raises(UserError):
        one(make_agent(), said(capacity={"cpu": "many"}, notes=[DEAD_ENGINE]))


@ways
def test_it_is_kept_when_a_lost_node_was_found_again(record: Callable[[Agent, SyncUp], bool]) -> None:
    agent, started_at = make_agent(), timezone.now()
    record(agent, said())
    agent.refresh_from_db()
    assert agent.returned_at is None
    mark_lost(now=timezone.now(), silent_for=timedelta())
    agent.refresh_from_db()
    record(agent, said())
    agent.refresh_from_db()
    found = agent.returned_at
    assert found is not None
    assert (agent.lost_at, agent.status) == (None, Agent.Status.ALIVE)
    assert found > started_at
    record(agent, said(version="2"))
    agent.refresh_from_db()
    assert agent.returned_at == found


@ways
def test_how_busy_a_node_is_is_kept_until_it_says_so_anew(record: Callable[[Agent, SyncUp], bool]) -> None:
    agent = make_agent(capacity=CAPACITY, devices=DEVICES)
    device = {"slot": "cuda.device", "model": "H200", "util_pct": 250.0, "mem_used": 1, "mem_total": 2}
    busy = {"cpu_pct": 12.345, "load": 0.5, "devices": {"GPU-0": device}}
    record(agent, said(live=busy))
    agent.refresh_from_db()
    assert parse_datetime(agent.live["at"])
    assert (agent.live["cpu_pct"], agent.live["mem_used"]) == (12.3, None)
    kept = agent.live["devices"]["GPU-0"]
    assert (kept["util_pct"], kept["mem_total"], kept["healthy"], kept["kernels"]) == (100.0, 2, True, {})
    assert not record(agent, said())
    agent.refresh_from_db()
    assert agent.live["devices"]["GPU-0"] == kept


def test_a_node_cannot_fill_the_database_with_devices() -> None:
    for live in (
        {"devices": {f"GPU-{number}": {} for number in range(129)}},
        {"devices": {"GPU-0": {"kernels": {str(uuid4()): {} for _ in range(65)}}}},
        {"load": "nan"},
        {"mem_used": -1},
    ):
        with pytest.raises(ValidationError):
            said(live=live)
    assert len(said(live={"devices": {"GPU-0": {"note": "x" * 9999}}}).live.devices["GPU-0"].note) == 500


@pytest.mark.parametrize(
    "over",
    [
        {"capacity": {f"evil{number}.device": "1" for number in range(33)}},
        {"capacity": {"x" * 65: "1"}},
        {"capacity": {"cpu": "1" * 33}},
        {"notes": [{"code": "n", "message": "m"}] * 65},
        {"images": [{"reference": "a:1"}] * 5001},
        {"images": [{"reference": "a:1", "labels": {str(number): "" for number in range(65)}}]},
        {"images": [{"reference": "a:1", "labels": {"a": "x" * 4097}}]},
        {"kernels": [{"kernel_id": uuid4(), "generation": 1, "running": True}] * 10_001},
    ],
)
def test_a_node_says_no_more_than_a_message_may_hold(over: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        said(**over)
    assert is_too_much(refused.value)


def test_a_second_machine_with_the_same_credentials_waits_until_the_first_is_silent() -> None:
    agent, now = make_agent(), timezone.now()
    agent.boot_id = ""
    record_sync(agent, said(boot_id="first"), now=now)
    agent.refresh_from_db()
    copy = said(boot_id="second")
    with pytest.raises(UserError, match="Another machine with the credentials"):
        record_sync(agent, copy, now=now + timedelta(seconds=5))
    news, refused = record_syncs([(agent, copy)], now=now + timedelta(seconds=5))
    assert (news, list(refused)) == (set(), [agent.pk])
    record_sync(agent, said(boot_id="first"), now=now + timedelta(seconds=10))
    agent.refresh_from_db()
    record_sync(agent, copy, now=now + timedelta(seconds=26))
    agent.refresh_from_db()
    assert agent.boot_id == "second"


def test_an_image_has_no_more_bytes_than_images_have() -> None:
    report = {"kernel_id": uuid4(), "generation": 1, "state": "PULLING", "fetched_bytes": 2**63 - 1}
    told = KernelReport(**report, image_bytes=2**40)
    assert (told.fetched_bytes, told.image_bytes) == (None, 2**40)


@ways
def test_slots_that_only_a_node_knows_wait_for_an_administrator(
    record: Callable[[Agent, SyncUp], bool], cast: Cast
) -> None:
    before = set(SlotType.objects.values_list("name", flat=True))
    agent, other = make_agent("one"), make_agent("two")
    usual = {"cpu": "4", "mem": "1024", "cuda.device": "1", "cuda.mig-1g.10gb": "2"}
    record(agent, said(capacity=usual | {"evil.device": "1"}))
    rows = {row.name: (row.is_enabled, row.offered_by_id) for row in SlotType.objects.filter(name__in=usual)}
    assert rows == dict.fromkeys(usual, (True, None))
    piece = SlotType.objects.get(name="cuda.mig-1g.10gb")
    assert (piece.kind, piece.step) == ("unique", "1")
    evil = SlotType.objects.get(name="evil.device")
    assert (evil.is_enabled, evil.offered_by) == (False, agent)
    with pytest.raises(UserError, match="not offered at present"):
        check_steps(Slots.parse({"evil.device": "1"}))
    record(other, said(capacity={"evil.device": "1"}))
    for number in range(5):  # names that change from sync to sync do not pile up
        agent.refresh_from_db()
        record(agent, said(capacity={f"evil{number}.device": "1"}))
    assert set(SlotType.objects.filter(is_enabled=False).values_list("name", flat=True)) == {"evil4.device"}
    other.refresh_from_db()
    record(other, said(capacity={"evil.device": "1"}))
    assert SlotType.objects.get(name="evil.device").offered_by == other
    change_slot_type(cast.dana, SlotType.objects.get(name="evil.device"), {"is_enabled": True})
    Agent.objects.all().delete()
    left = set(SlotType.objects.values_list("name", flat=True)) - before
    assert left == {"cuda.mig-1g.10gb", "evil.device"}, "what nobody enabled goes with its agent"
