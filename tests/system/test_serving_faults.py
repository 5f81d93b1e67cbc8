"""Endpoints whose database, machine, memory or image goes away: what goes on, what is told, and what to do next."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from docker import APIClient

from tests.agent.images import PYTHON_IMAGE, ensure_python_image
from tests.chaos.servers import Postgres
from tests.patience import until
from tests.system.platform import READY_WITHIN, Platform
from tests.system.served import CALLERS, Load, Served

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(420)]
NATIVE = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes", "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=4g"}
IMAGE = "local/backendai-test-served:1"  # a tag of its own, which goes away
SUBSTITUTED_WITHIN = 150.0


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as stack:
        engine = APIClient()
        stack.callback(engine.close)
        ensure_python_image(engine)
        engine.tag(PYTHON_IMAGE, *IMAGE.split(":"))
        platform = stack.enter_context(Platform(tmp_path_factory.mktemp("served"), images={"python": IMAGE}))
        served = Served(platform, resources={"cpu": "0.2", "mem": "64m"})
        stack.callback(served.delete)
        served.wait(2)
        yield served


def test_without_a_database_requests_go_on_even_after_two_kills_of_the_app_proxy() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backendai-serving-")))
        folder.chmod(0o711)  # PostgreSQL's own user must pass
        postgres = stack.enter_context(Postgres(folder))
        extra = {**NATIVE, "DATABASE_URL": postgres.url}
        (folder / "data").mkdir()
        platform = stack.enter_context(Platform(folder / "data", backend="process", extra=extra))
        served, asleep = Served(platform), Served(platform, "asleep", replicas=0)
        served.wait(2)
        stack.enter_context(served.second_proxy())
        with Load(served) as load:
            load.wait_for(20)
            with postgres.down():
                load.wait_for(200)
                refused = asleep.ask({})
                for _ in range(2):
                    former = platform.kill("appproxy")
                    platform.wait_for_restart("appproxy", former)
                    load.wait_for(100)
                assert load.served.ports[0] in {port for port, _ in load.lost} or not load.lost
            load.wait_for(20)
        assert set(load.statuses) == {200}
        assert len(load.lost) <= 2 * CALLERS and {port for port, _ in load.lost} <= {served.ports[0]}
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "cannot-wake")
        assert refused.headers["Retry-After"]
        until(lambda: asleep.ask({}, seconds=90).status_code == 200, READY_WITHIN, "the other endpoint wakes")
        served.wait(2)
        for one in (served, asleep):
            one.delete()


def test_a_machine_that_is_lost_has_a_substitute_and_costs_no_request(tmp_path: Path) -> None:
    slots = {"BACKENDAI_AGENT_SLOTS": "cpu=0.4,mem=4g"}  # room for one replica
    with Platform(tmp_path, backend="process", agents=3, extra=NATIVE | slots) as platform:
        served = Served(platform, resources={"cpu": "0.3", "mem": "128m"})
        served.wait(2)
        agent = psutil.Process(platform.pids()[_role_of(served.replicas()[0]["agents"][0])])
        with Load(served) as load:
            load.wait_for(20)
            before = {one["number"] for one in served.replicas()}
            agent.suspend()
            until(lambda: _substitutes(served, before), SUBSTITUTED_WITHIN, "a substitute serves", last=served.replicas)
            load.wait_for(40)
            told = served.look()
            agent.resume()
            until(lambda: len(served.replicas()) == 2, SUBSTITUTED_WITHIN, "one of both goes", last=served.replicas)
            served.wait(2)
            load.wait_for(20)
        assert told["health"] == "serving", told
        assert set(load.statuses) == {200} and len(load.lost) <= CALLERS, load.lost
        served.delete()


@pytest.mark.docker
def test_a_replica_out_of_memory_is_replaced_and_says_so(containers: Served) -> None:
    before = {one["number"]: one["session"] for one in containers.replicas()}
    with ThreadPoolExecutor(1) as threads, Load(containers) as load:
        load.wait_for(10)
        broken = threads.submit(containers.ask, {"fault": "memory"})
        replaced = lambda: {one["number"] for one in containers.replicas()} - before.keys()  # noqa: E731
        until(replaced, READY_WITHIN, "another replica starts", last=containers.codes)
        containers.wait(2)
        load.wait_for(20)
    assert (broken.result().status_code, broken.result().json()["error"]["code"]) == (502, "replica-broken")
    left = {one["number"] for one in containers.replicas()}
    (gone,) = [session for number, session in before.items() if number not in left]
    assert containers.client.session(gone)["status_reason"] == "out-of-memory"
    assert set(load.statuses) <= {200, 502} and load.statuses.count(502) + len(load.lost) <= CALLERS


@pytest.mark.docker
def test_an_image_that_is_gone_is_named_while_the_other_replica_serves_and_comes_back(containers: Served) -> None:
    containers.wait(2)
    engine, lost = containers.platform.engine, containers.replicas()[0]
    engine.remove_image(IMAGE, noprune=True, force=True)
    try:
        kernel = UUID(containers.client.session(lost["session"])["kernels"][0]["id"])
        engine.kill(f"krn-{kernel}")
        with Load(containers) as load:
            until(lambda: _holds(containers), READY_WITHIN, "the reason is told", last=containers.look)
            load.wait_for(20)
        found = containers.look()
        assert found["health"] == "degraded"
        assert IMAGE in found["reason"]["message"] or "image" in found["reason"]["message"].lower(), found["reason"]
        assert load.statuses.count(200) >= len(load.statuses) - CALLERS and set(load.statuses) <= {200, 502}
    finally:
        engine.tag(PYTHON_IMAGE, *IMAGE.split(":"))
    containers.client._send("POST", f"{containers.path}retry/", json={})
    containers.wait(2, SUBSTITUTED_WITHIN)


def _substitutes(served: Served, before: set[int]) -> bool:
    return any(one["number"] not in before and one["state"] == "ready" for one in served.replicas())


def _holds(served: Served) -> bool:
    return bool(served.look()["reason"]["code"] in ("start-backoff", "starting-again", "no-room"))


def _role_of(agent: str) -> str:
    return "agent" if agent == "local" else agent.replace("local", "agent")
