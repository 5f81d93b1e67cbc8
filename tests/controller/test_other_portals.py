"""Two portals with one deployment name at one broker notice each other; one alone never alarms anybody."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone
from redis import Redis

from backendai.domain.cluster.epochs import has_other_portal
from backendai.domain.cluster.models import DatabaseEpoch
from backendai.ops.doctor import portal
from backendai.portal.loops.repair.rounds import RULES, watch_for_others
from backendai.portal.web.dashboard.health import health
from tests.brokers import own_broker

pytestmark = pytest.mark.django_db
KEPT = ("mark", "strangers")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with own_broker(tmp_path_factory.mktemp("broker")) as server:
        yield server.url


@pytest.fixture
def broker(address: str, settings: LazySettings) -> Redis:
    """The broker, empty, as the portal sees it."""
    settings.REDIS_URL, settings.DEPLOYMENT = address, "lab"
    redis = Redis.from_url(address)
    redis.flushall()
    return redis


def state() -> dict[str, Any]:
    return DatabaseEpoch.objects.values(*KEPT).get()


def passes(number: int = 1) -> None:
    for _ in range(number):
        watch_for_others(timezone.now())


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


def test_the_repair_pass_looks() -> None:
    assert watch_for_others in RULES


def test_two_portals_with_one_name_notice_each_other(broker: Redis, caplog: pytest.LogCaptureFixture) -> None:
    databases = [state(), state()]
    for turn in range(8):
        DatabaseEpoch.objects.update(**databases[turn % 2])
        passes()
        databases[turn % 2] = state()
        if turn < 3:
            assert not has_other_portal()
    for kept in databases:
        DatabaseEpoch.objects.update(**kept)
        assert has_other_portal()
    assert len(errors(caplog)) == 2  # each says it once
    assert "lab" in errors(caplog)[0]
    assert portal.other_portals().level == "problem"
    assert [part.is_well for part in health(timezone.now()) if part.name == "Other portals"] == [False]


def test_it_is_over_when_the_other_portal_has_stopped(broker: Redis) -> None:
    passes()
    for _ in range(3):
        broker.set("lab:portal-mark", "another")
        passes()
    assert has_other_portal()
    passes()
    assert not has_other_portal()
    assert portal.other_portals().level == "ok"
    assert [part.is_well for part in health(timezone.now()) if part.name == "Other portals"] == [True]


def test_one_portal_alone_never_alarms(broker: Redis, caplog: pytest.LogCaptureFixture) -> None:
    passes(3)
    assert broker.get("lab:portal-mark") == state()["mark"].encode()
    assert state()["strangers"] == 0 and not errors(caplog)


def test_an_emptied_broker_alarms_nobody(broker: Redis) -> None:
    for _ in range(4):
        passes()
        broker.flushall()
    passes()
    assert state()["strangers"] == 0


def test_a_restored_database_alarms_nobody(broker: Redis) -> None:
    passes()
    backup = state()
    passes(5)
    DatabaseEpoch.objects.update(**backup)
    passes()
    assert state()["strangers"] == 1 and not has_other_portal()
    passes()
    assert state()["strangers"] == 0


def test_another_deployment_at_the_same_broker_is_no_other_portal(broker: Redis) -> None:
    passes()
    for _ in range(3):
        broker.set("trial:portal-mark", "of the other")
        passes()
    assert not has_other_portal()


def test_without_a_broker_nothing_is_learnt(settings: LazySettings, tmp_path: Path) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/absent.sock"
    DatabaseEpoch.objects.update(mark="one", strangers=2)
    passes()
    assert state() == {"mark": "one", "strangers": 2}
