"""What agents report of storage hosts becomes rows, and costs nothing while nothing changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from backendai.base.wire.mounts import HostReport
from backendai.domain.cluster.models import Agent
from backendai.domain.storage.host_reports import record_host_reports
from backendai.domain.storage.models import HostOnAgent, StorageHost
from tests.factories import make_agent
from tests.mount_tools import storage_host

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NOW = datetime(2026, 11, 1, tzinfo=UTC)
GIB = 2**30


def report(*agents: Agent, hosts: list[HostReport]) -> list[str]:
    heard = [(Agent.objects.get(pk=agent.pk), hosts) for agent in agents]
    return [agent.name for agent in record_host_reports(heard, now=NOW)]


def rows() -> list[tuple[str, str, str]]:
    return list(
        HostOnAgent.objects.order_by("agent__name", "host__name").values_list("agent__name", "host__name", "fault")
    )


def test_rows_follow_the_reports(django_assert_num_queries: Any) -> None:
    storage_host("one")
    storage_host("two")
    first, second = make_agent("n1"), make_agent("n2")
    both = [HostReport(name="one", free_bytes=5 * GIB), HostReport(name="two", fault="It is not mounted.")]
    assert report(first, second, hosts=both) == ["n1", "n2"]
    assert rows() == [
        ("n1", "one", ""),
        ("n1", "two", "It is not mounted."),
        ("n2", "one", ""),
        ("n2", "two", "It is not mounted."),
    ]
    with django_assert_num_queries(1):  # the agent itself
        assert report(first, hosts=both) == []
    assert report(first, hosts=[HostReport(name="one", free_bytes=9 * GIB), both[1]]) == []  # free space is no news
    assert HostOnAgent.objects.get(agent=first, host__name="one").free_bytes == 9 * GIB
    assert report(first, hosts=[HostReport(name="one", read_only=False)]) == ["n1"]
    assert rows()[0:1] == [("n1", "one", "")] and len(rows()) == 3
    assert report(second, hosts=[]) == ["n2"]
    assert rows() == [("n1", "one", "")]


def test_an_agent_that_never_reported_costs_nothing(django_assert_num_queries: Any) -> None:
    agent = make_agent()
    with django_assert_num_queries(0):
        assert record_host_reports([(agent, [])], now=NOW) == []


def test_a_host_that_is_created_later_is_found_at_the_next_report() -> None:
    agent = make_agent("n1")
    hosts = [HostReport(name="late")]
    assert report(agent, hosts=hosts) == [] and rows() == []
    StorageHost.objects.create(name="late", address="http://127.0.0.1:1")
    assert report(agent, hosts=hosts) == ["n1"] and rows() == [("n1", "late", "")]


def test_as_many_queries_for_many_agents_as_for_few(django_assert_max_num_queries: Any) -> None:
    storage_host("one")
    agents = [make_agent() for _ in range(20)]
    heard = [(agent, [HostReport(name="one")]) for agent in agents]
    with django_assert_max_num_queries(9):
        assert len(record_host_reports(heard, now=NOW)) == 20
