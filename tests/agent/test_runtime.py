"""The agent as a whole, in one process: it opens, works, drains and closes."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from backendai.agent.backends.base import BackendError, Ended
from backendai.agent.gateway.thread import listen
from backendai.agent.loop import runtime
from backendai.agent.loop.runtime import AgentRuntime
from backendai.agent.settings.config import read_settings
from backendai.agent.settings.credentials import Credentials, load_credentials
from backendai.agent.settings.marks import mark_native
from backendai.base.wire.messages import KernelSighting
from backendai.base.wire.tickets import new_private_key, public_key_of, sign_ticket
from tests.agent.memory_backend import MemoryBackend
from tests.agent.portal import AGENT, DEPLOYMENT, FakePortal, make_spec
from tests.patience import patient, until

KEY = new_private_key()


class Whole:
    """A runtime around a portal and a backend in memory."""

    def __init__(self, data: Path, **told: str) -> None:
        self.portal = FakePortal(public_key_of(KEY))
        self.backend = MemoryBackend(self.portal.said)
        settings = read_settings({"BACKENDAI_SYNC_INTERVAL": "0.05", **told}, {"data": str(data)})
        data.mkdir(exist_ok=True)
        listener = listen(settings, "http://127.0.0.1:1")
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        credentials = Credentials("http://p", AGENT, "t", DEPLOYMENT, "")
        self.runtime = AgentRuntime(
            settings,
            credentials,
            backend=self.backend,
            portal=self.portal,
            listener=listener,
            gateway_url=self.url,
        )
        self.runtime.connected.set()

    def healthz(self) -> dict[str, object]:
        with urllib.request.urlopen(f"{self.url}/healthz") as response:
            return json.load(response)

    def metrics(self) -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"{self.url}/metrics") as response:
            families = text_string_to_metric_families(response.read().decode())
        return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Whole]:
    whole = Whole(tmp_path / "agent")
    whole.runtime.start()
    until(lambda: bool(whole.portal.syncs))
    yield whole
    whole.runtime.stop(timeout=1)


def test_it_says_that_it_is_well(whole: Whole) -> None:
    assert whole.healthz()["status"] == "ok"
    assert whole.healthz()["agent"] == AGENT


def test_it_offers_its_metrics(tmp_path: Path) -> None:
    whole = Whole(tmp_path / "agent", BACKENDAI_METRICS_NETWORKS="127.0.0.0/8")
    whole.runtime.start()
    try:
        spec = whole.portal.want(make_spec())
        before = whole.metrics()
        whole.runtime.start_kernel(spec.kernel_id, 1)
        starts = ("backendai_agent_starts_total", "running")
        until(lambda: whole.metrics().get(starts, 0) > before.get(starts, 0))
        whole.runtime.start_kernel(spec.kernel_id, 1)
        until(lambda: whole.portal.states(spec.kernel_id).count("RUNNING") == 2)
        after = whole.metrics()
        grown = {name: after[name] - before.get(name, 0) for name in after}
        assert grown[starts] == 1, "a start that is repeated"
        assert grown["backendai_agent_start_phase_seconds_count", "start"] == 1
        assert after["backendai_agent_kernels",] == 1
        assert ("backendai_agent_actions", "start") in after
    finally:
        whole.runtime.stop(timeout=1)


def test_it_keeps_the_public_key_that_the_portal_names(whole: Whole, tmp_path: Path) -> None:
    until(lambda: load_credentials(tmp_path / "agent") is not None)
    kept = load_credentials(tmp_path / "agent")
    assert kept is not None and kept.public_key == public_key_of(KEY)


def test_it_finishes_what_is_under_way_and_begins_nothing_new(tmp_path: Path) -> None:
    whole = Whole(tmp_path / "agent")
    whole.runtime.start()
    whole.backend.start_gate.clear()
    spec = whole.portal.want(make_spec())
    whole.runtime.start_kernel(spec.kernel_id, 1)
    until(lambda: whole.backend.starting == 1)
    stopping = Thread(target=whole.runtime.stop)
    stopping.start()
    until(lambda: whole.healthz()["status"] == "draining")
    late = whole.portal.want(make_spec())
    whole.runtime.start_kernel(late.kernel_id, 1)
    synced = len(whole.portal.syncs)
    until(lambda: len(whole.portal.syncs) > synced + 2)  # sync goes on
    assert whole.portal.syncs[-1].draining
    whole.backend.start_gate.set()
    stopping.join(patient(10))
    assert not stopping.is_alive()
    assert whole.portal.status[spec.kernel_id] == "RUNNING"
    assert late.kernel_id not in whole.backend.entries
    assert whole.backend.said[-1] == "close"


def test_it_stops_in_time_when_a_start_hangs(tmp_path: Path) -> None:
    whole = Whole(tmp_path / "agent")
    whole.runtime.start()
    whole.backend.start_gate.clear()
    spec = whole.portal.want(make_spec())
    whole.runtime.start_kernel(spec.kernel_id, 1)
    until(lambda: whole.backend.starting == 1)
    stopping = Thread(target=whole.runtime.stop, kwargs={"timeout": 0.1})
    stopping.start()
    stopping.join(patient(10))
    assert not stopping.is_alive()
    whole.backend.start_gate.set()


def test_it_reports_kernels_that_end_with_the_agent(tmp_path: Path) -> None:
    whole = Whole(tmp_path / "agent")
    whole.runtime.start()
    spec = whole.portal.want(make_spec())
    until(lambda: whole.portal.status[spec.kernel_id] == "RUNNING")

    def end_all() -> None:
        for entry in whole.backend.entries.values():
            entry.ended = Ended(143, "agent-stopped", "The agent of this node was stopped.")

    whole.backend.on_close = end_all
    whole.runtime.stop()
    assert whole.portal.reports[-1].reason == "agent-stopped"
    assert whole.portal.status[spec.kernel_id] == "TERMINATED"


def test_it_opens_a_terminal_of_a_kernel_it_started_and_closes_it_with_1012(whole: Whole) -> None:
    spec = whole.portal.want(make_spec())
    until(lambda: whole.portal.status[spec.kernel_id] == "RUNNING")
    assert asyncio.run(_attach_until_closed(whole, spec.kernel_id)) == 1012


async def _attach_until_closed(whole: Whole, kernel_id: object) -> int | None:
    ticket = sign_ticket(KEY, kernel_id=kernel_id, generation=1, purpose="terminal", now=whole.portal.now())
    url = f"{whole.url}/kernels/{kernel_id}/terminal"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, headers={"Authorization": f"Ticket {ticket}"}) as websocket,
    ):
        assert await websocket.receive_json() == {"type": "ready"}
        stopping = asyncio.create_task(asyncio.to_thread(whole.runtime.stop))
        while not websocket.closed:
            await asyncio.wait_for(websocket.receive(), patient(10))
        await stopping
        return websocket.close_code


def test_it_ends_itself_for_the_other_backend_only_when_nothing_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(runtime.os, "kill", lambda pid, number: ended.append(number))
    whole = Whole(tmp_path / "agent")
    listed = whole.backend.kernels

    def away() -> list[KernelSighting]:
        raise BackendError("the engine is away")

    whole.runtime.start()
    try:
        spec = whole.portal.want(make_spec())
        whole.runtime.start_kernel(spec.kernel_id, 1)
        until(lambda: whole.portal.status.get(spec.kernel_id) == "RUNNING")
        mark_native(tmp_path / "agent", wanted=True)
        _two_more_syncs(whole)
        assert not ended, "a kernel runs"
        monkeypatch.setattr(whole.backend, "kernels", away)
        _two_more_syncs(whole)
        assert not ended, "an engine that does not answer may run anything"
        monkeypatch.setattr(whole.backend, "kernels", listed)
        whole.portal.terminate(spec.kernel_id)
        until(lambda: bool(ended))
    finally:
        whole.runtime.stop(timeout=1)


def _two_more_syncs(whole: Whole) -> None:
    synced = len(whole.portal.syncs)
    until(lambda: len(whole.portal.syncs) > synced + 2)
