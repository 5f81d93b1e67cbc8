"""``/metrics``: who gets it, what it says, and what it costs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from backendai.agent import counts as agent
from backendai.domain.cluster.models import PassLease
from backendai.domain.compute.models import ComputeSession
from backendai.domain.serving.models import ProxyReading
from backendai.domain.storage.models import Folder, StorageHost
from backendai.files.http import counts as files
from backendai.gates.appproxy import counts as proxy
from backendai.gates.sshgate import counts as gate
from backendai.portal.http.metrics import requests
from backendai.portal.http.metrics.page import state
from backendai.portal.loops import counts as control
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session
from tests.serving.world import make_endpoint

_METRIC = re.compile(r"\bbackendai_\w+")
_HISTOGRAM = ("_bucket", "_sum", "_count")
_ENDINGS = {
    "gauge": ("",),
    "counter": ("_total",),
    "histogram": _HISTOGRAM,
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
}

Scrape = Callable[[], dict[tuple[Any, ...], float]]

TOKEN = "a-token-of-a-scraper-1"

pytestmark = pytest.mark.django_db


@pytest.fixture
def scrape(client: Client, settings: Any) -> Scrape:
    """Return a function that reads the metrics: by name and values of labels, in the order of their names."""
    settings.METRICS_TOKEN = TOKEN

    def read() -> dict[tuple[Any, ...], float]:
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200 and answer["Content-Type"].startswith("text/plain; version=0.0.4")
        families = text_string_to_metric_families(answer.content.decode())
        samples = [one for family in families for one in family.samples]
        return {(one.name, *(value for _, value in sorted(one.labels.items()))): one.value for one in samples}

    return read


@pytest.mark.parametrize(
    ("network", "sent", "status"),
    [
        ("", f"Bearer {TOKEN}", 200),
        ("", "Bearer another-token-of-21", 404),
        ("", "", 404),
        ("10.0.0.0/8", "", 404),
        ("127.0.0.0/8", "", 200),
        ("127.0.0.0/8", "Bearer another-token-of-21", 404),
    ],
)
def test_a_token_or_a_network_opens_it(client: Client, settings: Any, network: str, sent: str, status: int) -> None:
    settings.METRICS_TOKEN, settings.METRICS_NETWORKS = TOKEN, [network] if network else []
    assert client.get("/metrics", headers={"Authorization": sent} if sent else {}).status_code == status


def test_nobody_gets_it_without_a_setting(client: Client) -> None:
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


def test_it_says_what_waits_and_what_is_used(scrape: Scrape, cast: Cast) -> None:
    now = timezone.now()
    running = make_running_session(cast.alice, agent := make_agent())
    session = make_session(cast.alice)
    waiting = {"created_at": now - timedelta(minutes=10), "status_reason": "agent-busy"}
    ComputeSession.objects.filter(pk=session.pk).update(**waiting)
    PassLease.objects.create(name="pass", finished_at=now - timedelta(seconds=3))
    found, group = scrape(), session.resource_group.name
    assert found["backendai_sessions", group, "PENDING", "interactive"] == 1
    assert found["backendai_pending_sessions", group, "agent-busy"] == 1
    assert 600 <= found["backendai_oldest_wait_seconds", group, "agent-busy"] < 700
    assert found["backendai_agent_up", agent.name, group] == 1
    assert found["backendai_sessions", group, "RUNNING", "interactive"] == 1
    cpu = ("cpu", running.kernels.get().slots["cpu"])
    assert found["backendai_agent_slots", agent.name, group, cpu[0]] == float(agent.capacity["cpu"])
    assert found["backendai_agent_slots_allocated", agent.name, group, cpu[0]] == float(cpu[1])
    assert 3 <= found["backendai_loop_age_seconds", "pass"] < 60


def test_it_says_how_long_the_sessions_of_the_last_hour_waited(scrape: Scrape, cast: Cast) -> None:
    now, agent = timezone.now(), make_agent(backend="docker")
    for hours, waited in ((0, 4), (0, 100), (2, 4)):
        began = now - timedelta(hours=hours, seconds=200)
        placed = began + timedelta(seconds=waited)
        times = {"created_at": began, "scheduled_at": placed, "started_at": placed + timedelta(seconds=1)}
        ComputeSession.objects.filter(pk=make_running_session(cast.alice, agent).pk).update(**times)
    found, place = scrape(), ("docker", agent.resource_group.name)
    assert [found["backendai_wait_seconds_bucket", *place, le] for le in ("1.0", "5.0", "300.0", "+Inf")] == [
        0,
        1,
        2,
        2,
    ]
    assert (found["backendai_wait_seconds_gcount", *place], found["backendai_wait_seconds_gsum", *place]) == (2, 104)
    assert (found["backendai_start_seconds_bucket", *place, "1.0"], found["backendai_start_seconds_gsum", *place]) == (
        2,
        2,
    )


def test_it_says_what_accelerators_do(scrape: Scrape, db: None) -> None:
    devices = {
        "GPU-1": {"slot": "cuda.device", "util_pct": 80.0, "healthy": True},
        "GPU-2": {"slot": "cuda.device", "util_pct": 1.0, "healthy": True},
        "GPU-3": {"slot": "", "util_pct": None, "healthy": False},
    }
    live = {"cpu_pct": 50.0, "mem_used": 7, "devices": devices}
    agent = make_agent(cpu=4, live=live, low_disk=True)
    lost = make_agent(live=live, status="LOST")
    found, labels = scrape(), (agent.name, agent.resource_group.name)
    assert found["backendai_agents", agent.resource_group.name, "LOST"] == 1
    assert found["backendai_agent_low_disk", *labels] == 1
    used = {slot: found["backendai_agent_slots_used", *labels, slot] for slot in ("cpu", "mem", "cuda.device")}
    assert used == {"cpu": 2, "mem": 7, "cuda.device": pytest.approx(0.81)}
    assert found["backendai_agent_idle_devices", *labels, "cuda.device"] == 1
    assert found["backendai_agent_devices", *labels, "cuda.device", "healthy"] == 2
    assert found["backendai_agent_devices", *labels, "", "unhealthy"] == 1
    assert not [key for key in found if key[:2] == ("backendai_agent_slots_used", lost.name)]


def test_it_says_how_full_storage_is_and_what_endpoints_were_asked(scrape: Scrape, cast: Cast) -> None:
    host = StorageHost.objects.create(name="local", total_bytes=100, free_bytes=40, fault="")
    sizes: tuple[tuple[int, int | None], ...] = ((9, 10), (5, 10), (30, None))
    for used, limit in sizes:
        row = {"host": host, "user": cast.alice, "name": f"data-{used}", "used_bytes": used, "limit_bytes": limit}
        Folder.objects.create(status="READY", **row)
    endpoint = make_endpoint(cast.alice)
    for boot, counts in (("a", (10, 13)), ("b", (0, 4))):
        for number, counted in enumerate(counts):
            at = timezone.now() - timedelta(seconds=60 - number)
            row = {"proxy": "p", "boot": boot, "endpoint": endpoint, "at": at, "uptime": number}
            ProxyReading.objects.create(requests=counted, **row)
    found = scrape()
    assert (found["backendai_storage_up", "local"], found["backendai_storage_free_bytes", "local"]) == (1, 40)
    names = ("folders", "folder_used_bytes", "folder_limit_bytes", "folders_nearly_full")
    assert [found[f"backendai_{name}", "local"] for name in names] == [3, 44, 20, 1]
    assert found["backendai_endpoint_recent_requests", endpoint.resource_group.name] == 7


def test_it_says_that_the_broker_is_away(scrape: Scrape, settings: Any, tmp_path: Path, db: None) -> None:
    settings.REDIS_URL = f"unix://{tmp_path / 'absent.sock'}"
    found = scrape()
    assert (found["backendai_part_up", "broker"], found["backendai_part_up", "database"]) == (0, 1)
    assert 0 < found["backendai_part_answer_seconds", "database"] < 10


def test_it_says_that_the_database_is_away(scrape: Scrape, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connection, "cursor", fail)
    found = scrape()
    assert found["backendai_part_up", "database"] == 0
    assert ("backendai_loop_age_seconds", "pass") not in found


def test_it_costs_as_many_queries_for_any_number_of_rows(scrape: Scrape, cast: Cast) -> None:
    for number in range(3):
        make_running_session(cast.alice, make_agent(f"agent-{number}"))
    with CaptureQueriesContext(connection) as asked:
        scrape()
    assert len(asked) == 12


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_no_fault(client: Client, settings: Any, cast: Cast) -> None:
    make_running_session(cast.alice)
    settings.METRICS_TOKEN = TOKEN
    text = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).content
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboards_name_metrics_that_are_there() -> None:
    counted = (requests, proxy, gate, files, agent, control)
    described = [family for one in counted for family in one.registry.collect()] + [*state(timezone.now())]
    there = {family.name + ending for family in described for ending in _ENDINGS[family.type]}
    folder = Path(settings.BASE_DIR) / "deploy/monitoring"
    documents = [folder / "alerts.yaml", *folder.glob("*.json")]
    named = {file.name: set(_METRIC.findall(file.read_text())) for file in documents}
    assert len(named) == 6 and all(named.values())
    assert set().union(*named.values()) - there == set()


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_takes_the_rules() -> None:
    rules = Path(settings.BASE_DIR) / "deploy/monitoring/alerts.yaml"
    done = subprocess.run(["promtool", "check", "rules", rules], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
