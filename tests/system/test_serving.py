"""An endpoint on a real platform: requests while its processes are killed, replicas that misbehave, a broken update."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from backendai.serving.reading import HEARD
from tests.system.client import TERMINAL, Body
from tests.system.platform import READY_WITHIN, ROOT, Platform, free_port
from tests.system.polling import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(420)]
SERVER = Path(__file__).with_name("model_server.py")
CALLERS = 4
SILENT_FOR = 1.3 * HEARD.total_seconds()
KILLED = ("web", "control", "beat", "valkey")
BROKEN_IN_ANSWER = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)


class Served:
    """An endpoint with two replicas, reached through two app proxies: the platform's and one beside it."""

    def __init__(self, platform: Platform) -> None:
        self.platform, self.client = platform, platform.client
        self.revision = {"image": "python", "command": f"exec python3 -c '{_source()}'", "port": free_port()}
        self.revision["resources"] = {"cpu": "0.2", "mem": "128m"}
        wish = {"name": "chat", "minimum": 2, "maximum": 2, **self.revision}
        self.endpoint = self.client.post("endpoints/", wish)
        self.token = self.client.post(f"endpoints/{self.endpoint['id']}/tokens/", {"name": "test"})["token"]
        address = self.endpoint["url"].partition("://")[2]
        self.ports = [int(address.rpartition(":")[2]), free_port()]
        self.host = address

    def names_at(self, port: int) -> int:
        """Return how many replicas a few requests to this proxy reach."""
        answers = [self.ask({}, port=port) for _ in range(8)]
        return len({one.json()["choices"][0]["message"]["content"] for one in answers if one.status_code == 200})

    def opened(self) -> int:
        """Return how many requests are open in all, as the control plane knows."""
        return sum(one["open"] for one in self.client._get(f"endpoints/{self.endpoint['id']}/replicas/").json())

    def look(self) -> Body:
        """Return the endpoint as it is now."""
        return dict(self.client._get(f"endpoints/{self.endpoint['id']}/").json())

    def codes(self) -> list[str]:
        """Return what was decided, the newest first."""
        return [one["code"] for one in self.client._get(f"endpoints/{self.endpoint['id']}/history/").json()["results"]]

    def ask(self, body: Body, *, port: int | None = None, stream: bool = False, seconds: float = 20) -> Any:
        """Send one chat to an app proxy."""
        headers = {"Host": self.host, "Authorization": f"Bearer {self.token}"}
        url = f"http://127.0.0.1:{port or self.ports[0]}/v1/chat/completions"
        asks = requests.Session()
        asks.trust_env = False
        return asks.post(url, json=body, headers=headers, stream=stream, timeout=seconds)

    @contextmanager
    def second_proxy(self) -> Iterator[psutil.Process]:
        """Run another app proxy, with a book of its own."""
        redis = f"unix://{self.platform.data}/valkey.sock"
        told = {"BACKENDAI_APPS_PORT": str(self.ports[1]), "REDIS_URL": redis, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(ROOT / "manage.py"), "appproxy"]
        with (self.platform.data / "second.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**self.platform.environment, **_settings_of(self.platform), **told},
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: self._answers(self.ports[1]), READY_WITHIN, "the second app proxy answers")
            yield psutil.Process(process.pid)
        finally:
            # In good order: drains wait for a proxy that vanishes, which may only be cut off.
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()

    def _answers(self, port: int) -> bool:
        try:
            return bool(self.ask({}, port=port).status_code == 200)
        except requests.RequestException:
            return False


class Load:
    """Callers that send one request after another. One whose proxy is not there goes to the other one."""

    def __init__(self, served: Served) -> None:
        self.served, self.statuses, self.names = served, list[int](), set[str]()
        self.lost: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(one,)) for one in range(CALLERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more: int) -> None:
        """Wait until so many more requests were answered."""
        goal = len(self.statuses) + more
        until(lambda: len(self.statuses) >= goal, 60, f"{more} more answers", last=lambda: self.lost)

    def _send(self, number: int) -> None:
        first = number % 2
        while not self._over.is_set():
            try:
                self._note(self.served.ask({}, port=self.served.ports[first]))
            except BROKEN_IN_ANSWER as error:
                # Refused is not lost: nothing was sent, and a caller tries the other address of the name.
                if "refused" not in str(error).lower():
                    self.lost.append(str(error)[-200:])
                first = 1 - first

    def _note(self, answer: requests.Response) -> None:
        self.statuses.append(answer.status_code)
        if answer.status_code == 200:
            self.names.add(answer.json()["choices"][0]["message"]["content"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    extra = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes", "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=4g"}
    with Platform(tmp_path_factory.mktemp("serving"), backend="process", extra=extra) as platform:
        served = Served(platform)
        until(lambda: served.look()["ready"] == 2, READY_WITHIN, "two replicas answer", last=served.look)
        yield served
        platform.client._send("DELETE", f"endpoints/{served.endpoint['id']}/")
        until(
            lambda: all(one["status"] in TERMINAL for one in platform.client.sessions()),
            READY_WITHIN,
            "its replicas have ended",
        )


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


def test_a_frozen_proxy_is_waited_for_in_a_drain_and_its_request_is_answered(served: Served) -> None:
    path = f"endpoints/{served.endpoint['id']}/"

    def states() -> list[str]:
        return sorted(one["state"] for one in served.client._get(f"{path}replicas/").json())

    until(lambda: states() == ["ready", "ready"], READY_WITHIN, "two replicas are ready", last=states)
    with served.second_proxy() as proxy, ThreadPoolExecutor(2) as threads:
        until(lambda: served.names_at(served.ports[1]) == 2, READY_WITHIN, "it sends to both replicas")
        asks = [threads.submit(served.ask, {"seconds": 6}, port=served.ports[1], seconds=90) for _ in range(2)]
        until(lambda: served.opened() == 2, READY_WITHIN, "both requests are open", last=served.opened)
        proxy.suspend()
        frozen_at = time.monotonic()
        served.client._send("PATCH", path, json={"minimum": 1, "maximum": 1})
        until(lambda: states() == ["draining", "ready"], READY_WITHIN, "one replica drains", last=states)
        assert [one.exception() for one in asks if one.done()] == []
        # Longer than a proxy is counted as heard: without its word the replica may not end.
        until(lambda: time.monotonic() - frozen_at > SILENT_FOR, READY_WITHIN, "the frozen proxy is silent")
        assert states() == ["draining", "ready"]
        proxy.resume()
        assert [one.result().status_code for one in asks] == [200, 200]
        until(lambda: states() == ["ready"], READY_WITHIN, "the drained replica ends", last=states)
    served.client._send("PATCH", path, json={"minimum": 2, "maximum": 2})
    until(lambda: states() == ["ready", "ready"], READY_WITHIN, "two replicas are ready again", last=states)


@pytest.mark.long
def test_a_replica_that_hangs_is_replaced_and_costs_no_request_of_others(served: Served) -> None:
    until(lambda: served.ask({}).status_code == 200, READY_WITHIN, "the app proxy serves")
    name = str(served.ask({}).json()["choices"][0]["message"]["content"])
    frozen = [one for one in psutil.process_iter() if _kernel_of(one) == name]
    for one in frozen:
        one.suspend()
    before = {one["number"] for one in served.client._get(f"endpoints/{served.endpoint['id']}/replicas/").json()}
    until(lambda: "not-answering" in served.codes(), 240, "the hanging replica is replaced", last=served.codes)
    for one in frozen:
        with suppress(psutil.NoSuchProcess):
            one.resume()
    until(lambda: served.look()["ready"] == 2, READY_WITHIN, "two replicas answer again", last=served.look)
    after = {one["number"] for one in served.client._get(f"endpoints/{served.endpoint['id']}/replicas/").json()}
    assert after - before
    assert served.ask({}).status_code == 200


@pytest.mark.long
def test_a_server_that_never_listens_is_told_and_backs_off(served: Served) -> None:
    deaf = {**served.revision, "port": free_port(), "environ": {"FAULT": "deaf"}, "startup_timeout": 3}
    endpoint = served.client.post("endpoints/", {"name": "deaf", **deaf})
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
    served.client.post(
        f"endpoints/{served.endpoint['id']}/revisions/", {**served.revision, "environ": {"FAULT": "exit"}}
    )
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


def _source() -> str:
    return SERVER.read_text().replace("'", "'\\''")


def _settings_of(platform: Platform) -> dict[str, str]:
    """Return the variables with which the platform's own app proxy runs."""
    environ = psutil.Process(platform.pids()["appproxy"]).environ()
    return {name: value for name, value in environ.items() if name not in os.environ or name.startswith("BACKENDAI_")}
