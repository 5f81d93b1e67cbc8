"""Who ends a session and the node that reports of it do not stand in each other's way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.utils import timezone

from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life import ending
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.life.retrying import Expired, expire_starts
from backendai.domain.compute.services.placing.cluster_networks import next_number, number_networks
from backendai.domain.compute.status import Phase
from tests.cast import Cast, make_cast
from tests.factories import make_agent, make_session, place

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture
def people() -> Cast:
    return make_cast()


@pytest.mark.parametrize("other", ["report", "expiry"])
def test_an_end_and_what_starts_with_the_kernel_wait_for_each_other(
    people: Cast, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(cpu=64, mem="64g")
    session = make_session(people.alice)
    place(session, agent)
    kernel = session.kernels.get()
    holds_session, told = threading.Event(), {"report": lambda: report(agent, kernel), "expiry": lambda: expire(kernel)}
    move_kernels = ending.move_kernels

    def slowly(kernel_ids: list[UUID], *args: Any, **named: Any) -> Any:
        if kernel_ids:
            holds_session.set()
            time.sleep(0.5)  # the other one asks for its rows meanwhile
        return move_kernels(kernel_ids, *args, **named)

    monkeypatch.setattr(ending, "move_kernels", slowly)
    with ThreadPoolExecutor(2) as pool:
        ended = pool.submit(in_own_connection, lambda: terminate_session(session, people.alice))
        assert holds_session.wait(30)
        waited = pool.submit(in_own_connection, told[other])
        ended.result(60)
        waited.result(60)
    session.refresh_from_db()
    assert session.status == "TERMINATING"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
def test_a_retry_does_not_wait_for_the_network_numbers_of_a_placement(people: Cast) -> None:
    session = make_session(people.alice, cluster_size=2, cluster_mode="multi-node")
    holds_numbers, has_asked = threading.Event(), threading.Event()

    def place_another() -> None:
        with transaction.atomic():
            number_networks([session.pk])
            holds_numbers.set()
            assert has_asked.wait(30)

    with ThreadPoolExecutor(1) as pool:
        placed = pool.submit(in_own_connection, place_another)
        assert holds_numbers.wait(30)
        try:
            with transaction.atomic():
                assert next_number(7) == 7
        finally:
            has_asked.set()
        placed.result(60)
    session.refresh_from_db()
    beyond = session.cluster_network + 1  # which number the session has got depends on the deployment's name
    with transaction.atomic():
        assert next_number(beyond) == beyond + 1


def report(agent: Agent, kernel: Kernel) -> None:
    kernel_reported(agent, KernelReport(kernel_id=kernel.pk, generation=kernel.generation, state=KernelState.CREATING))


def expire(kernel: Kernel) -> None:
    late = Expired(kernel.pk, kernel.session_id, Phase.START, "start-timeout", "too late")
    expire_starts([late], now=timezone.now())


def in_own_connection(call: Callable[[], Any]) -> Any:
    try:
        return call()
    finally:
        connection.close()
