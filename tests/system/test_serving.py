"""An endpoint on a real platform: requests while its processes are killed, replicas that misbehave, a broken update."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from backendai.domain.serving.reading import HEARD
from tests.patience import until
from tests.system.client import fresh
from tests.system.platform import READY_WITHIN, Platform, free_port
from tests.system.served import BROKEN_IN_ANSWER, CALLERS, Load, Served

pytestmark = [pytest.mark.system, pytest.mark.timeout(420)]
SILENT_FOR = 1.3 * HEARD.total_seconds()
KILLED = ("web", "control", "beat", "valkey")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    extra = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes", "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=4g"}
    with Platform(tmp_path_factory.mktemp("serving"), backend="process", extra=extra) as platform:
        served = Served(platform)
        served.wait(2)
        yield served
        served.delete()


def test_kills_of_the_platform_lose_no_request_but_those_open_in_the_killed_proxy(served: Served) -> None:
    platform = served.platform
    with served.second_proxy(), Load(served) as load:
        load.wait_for(20)
        former = {role: platform.kill(role) for role in KILLED}
        load.wait_for(40)
        assert load.lost == []
        proxy = platform.kill("appproxy")
        load.wait_for(40)
        for role, pid in {**former, "appproxy": proxy}.items():
            platform.wait_for_restart(role, pid)
        load.wait_for(10)
    assert set(load.statuses) == {200}
    assert len(load.names) == 2
    assert len(load.lost) <= CALLERS
    assert {port for port, _ in load.lost} <= {served.ports[0]}, "the other app proxy lost something"


def test_a_frozen_proxy_is_waited_for_in_a_drain_and_its_request_is_answered(served: Served) -> None:
    def states() -> list[str]:
        return sorted(one["state"] for one in served.replicas())

    until(lambda: states() == ["ready", "ready"], READY_WITHIN, "two replicas are ready", last=states)
    with served.second_proxy() as proxy, ThreadPoolExecutor(2) as threads:
        until(lambda: served.names_at(served.ports[1]) == 2, READY_WITHIN, "it sends to both replicas")
        asks = [threads.submit(served.ask, {"seconds": 6}, port=served.ports[1], seconds=90) for _ in range(2)]
        until(lambda: served.opened() == 2, READY_WITHIN, "both requests are open", last=served.opened)
        proxy.suspend()
        frozen_at = time.monotonic()
        served.client._send("PATCH", served.path, json={"minimum": 1, "maximum": 1})
        until(lambda: states() == ["draining", "ready"], READY_WITHIN, "one replica drains", last=states)
        assert [one.exception() for one in asks if one.done()] == []
        # Longer than a proxy is counted as heard: without its word the replica may not end.
        until(lambda: time.monotonic() - frozen_at > SILENT_FOR, READY_WITHIN, "the frozen proxy is silent")
        assert states() == ["draining", "ready"]
        proxy.resume()
        assert [one.result().status_code for one in asks] == [200, 200]
        until(lambda: states() == ["ready"], READY_WITHIN, "the drained replica ends", last=states)
    served.client._send("PATCH", served.path, json={"minimum": 2, "maximum": 2})
    until(lambda: states() == ["ready", "ready"], READY_WITHIN, "two replicas are ready again", last=states)


@pytest.mark.long
def test_a_replica_that_hangs_is_replaced_and_costs_no_request_of_others(served: Served) -> None:
    until(lambda: served.ask({}).status_code == 200, READY_WITHIN, "the app proxy serves")
    before = {one["number"] for one in served.replicas()}
    name = str(served.ask({}).json()["choices"][0]["message"]["content"])
    frozen = [one for one in psutil.process_iter() if _kernel_of(one) == name]
    with served.second_proxy(), Load(served) as load:
        load.wait_for(20)
        for one in frozen:
            one.suspend()
        until(lambda: "not-answering" in served.codes(), 240, "the hanging replica is replaced", last=served.codes)
        for one in frozen:
            with suppress(psutil.NoSuchProcess):
                one.resume()
        served.wait(2)
        load.wait_for(20)
    assert len({one["number"] for one in served.replicas()} - before) == 1
    assert "another replica serves in its place" in served.records()["not-answering"]
    failed = len(load.lost) + sum(status != 200 for status in load.statuses)
    assert failed <= 2 * CALLERS, (load.lost, load.statuses)  # those that were sent to it before it was ejected


@pytest.mark.long
def test_a_server_that_never_listens_is_told_and_backs_off(served: Served) -> None:
    deaf = {**served.revision, "port": free_port(), "environ": {"FAULT": "deaf"}, "startup_timeout": 3}
    endpoint = served.client.post("endpoints/", {"name": fresh("deaf"), **deaf})
    path = f"endpoints/{endpoint['id']}/"
    codes = lambda: [one["code"] for one in served.client._get(f"{path}history/").json()["results"]]  # noqa: E731
    until(lambda: {"never-ready", "start-backoff"} <= set(codes()), READY_WITHIN, "it backs off", last=codes)
    found = served.client._get(path).json()
    assert found["health"] == "unavailable"
    assert "did not answer" in found["reason"]["message"]
    assert served.client._send("DELETE", path).status_code == 204


@pytest.mark.long
def test_what_a_replica_does_wrong_is_told_and_a_broken_revision_goes_back(served: Served) -> None:
    until(lambda: served.ask({}).status_code == 200, READY_WITHIN, "the first app proxy serves again")
    served.client.post(f"{served.path}revisions/", {**served.revision, "environ": {"FAULT": "exit"}})
    garbage = served.ask({"fault": "garbage"})
    assert (garbage.status_code, garbage.json()["error"]["code"]) == (502, "replica-broken")
    for body in ({"fault": "lies"}, {"fault": "breaks", "stream": True}):
        with pytest.raises(BROKEN_IN_ANSWER):
            served.ask(body)
    with served.ask({"stream": True}, stream=True) as answer:
        events = [line for line in answer.iter_lines() if line.startswith(b"data: ")]
    assert events[-1] == b"data: [DONE]"
    assert len([json.loads(event[6:]) for event in events[:-1]]) == 5
    until(lambda: "rolled-back" in served.codes(), READY_WITHIN, "the broken revision goes back", last=served.codes)
    found = served.look()
    assert (found["revision"], found["next_revision"], found["ready"]) == (1, None, 2)
    assert served.ask({}).status_code == 200


def _kernel_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("BACKENDAI_KERNEL_ID", "")
    except psutil.Error:
        return ""
