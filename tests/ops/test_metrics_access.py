"""The ways to the metrics of processes other than the portal, and what control counts."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest
from django.utils import timezone
from prometheus_client import CollectorRegistry, Counter

from backendai.base.core.errors import UserError
from backendai.base.process.metrics_access import Scrapers, read_scrapers, serve_apart
from backendai.ops.checks import check_metrics
from backendai.portal.loops import counts, loops

TOKEN = "a-token-of-a-scraper-1"


@pytest.mark.parametrize(
    ("told", "scrapers"),
    [
        ({}, Scrapers()),
        ({"BACKENDAI_METRICS_TOKEN": TOKEN}, Scrapers(TOKEN)),
        ({"BACKENDAI_METRICS_NETWORKS": "10.0.0.5, 10.1.0.0/16"}, Scrapers("", ("10.0.0.5", "10.1.0.0/16"))),
        ({"BACKENDAI_METRICS_TOKEN": "short"}, None),
        ({"BACKENDAI_METRICS_NETWORKS": "lab"}, None),
    ],
)
def test_agents_and_file_servers_read_who_may_scrape(told: dict[str, str], scrapers: Scrapers | None) -> None:
    if scrapers is not None:
        assert read_scrapers(told) == scrapers
        return
    with pytest.raises(UserError, match=next(iter(told))):
        read_scrapers(told)


def test_a_process_without_a_server_offers_its_metrics_on_a_port_of_its_own() -> None:
    registry = CollectorRegistry()
    Counter("backendai_test_words", "Words.", registry=registry).inc(3)
    first = serve_apart("127.0.0.1:0", registry, Scrapers(TOKEN))
    assert first is not None
    second = serve_apart(f"127.0.0.1:{first.server_port}", registry, Scrapers(TOKEN))
    assert second is not None and second.server_port > first.server_port
    try:
        for server in (first, second):
            url = f"http://127.0.0.1:{server.server_port}/metrics"
            asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
            assert b"backendai_test_words_total 3.0" in urllib.request.urlopen(asked).read()
            with pytest.raises(HTTPError, match="404"):
                urllib.request.urlopen(url)
    finally:
        for server in (first, second):
            server.shutdown()
            server.server_close()


def test_a_wrong_address_is_refused(settings: Any) -> None:
    settings.CONTROL_METRICS, settings.SSH_METRICS = "9101", "127.0.0.1:9111"
    assert [one.msg for one in check_metrics()] == ["BACKENDAI_CONTROL_METRICS: '9101' cannot be listened on."]


@pytest.mark.django_db
def test_control_counts_its_passes() -> None:
    names = ("seconds_count", "changes_total", "failures_total")

    def numbers() -> list[float]:
        read = counts.registry.get_sample_value
        return [read(f"backendai_pass_{name}", {"loop": "group"}) or 0 for name in names]

    before = numbers()
    loops.single("group.7", timezone.now(), lambda: 3)
    with pytest.raises(ZeroDivisionError):
        loops.single("group.8", timezone.now(), lambda: 1 // 0)
    assert [now - then for now, then in zip(numbers(), before, strict=True)] == [2, 3, 1]
