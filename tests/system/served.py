"""An endpoint on a real platform, reached through two app proxies, and callers that note what they lose."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import requests

from tests.patience import patient, until
from tests.system.client import TERMINAL, Body
from tests.system.platform import READY_WITHIN, ROOT, Platform, free_port

SERVER = Path(__file__).with_name("model_server.py")
CALLERS = 4
BROKEN_IN_ANSWER = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
EACH = {"cpu": "0.2", "mem": "128m"}


class Served:
    """An endpoint, with two replicas unless told otherwise, reached through two app proxies: the platform's and one
    beside it."""

    def __init__(self, platform: Platform, name: str = "chat", *, replicas: int = 2, **revision: Any) -> None:
        self.platform, self.client = platform, platform.client
        self.revision = {"image": "python", "command": f"exec python3 -c '{_source()}'", "port": free_port()}
        self.revision |= {"resources": EACH, **revision}
        wish = {"name": name, "minimum": replicas, "maximum": max(replicas, 1), **self.revision}
        self.endpoint = self.client.post("endpoints/", wish)
        self.path = f"endpoints/{self.endpoint['id']}/"
        self.token = self.client.post(f"{self.path}tokens/", {"name": "test"})["token"]
        address = self.endpoint["url"].partition("://")[2]
        self.ports = [int(address.rpartition(":")[2]), free_port()]
        self.host = address

    def names_at(self, port: int) -> int:
        """Return how many replicas a few requests to this proxy reach."""
        answers = [self.ask({}, port=port) for _ in range(8)]
        return len({one.json()["choices"][0]["message"]["content"] for one in answers if one.status_code == 200})

    def opened(self) -> int:
        """Return how many requests are open in all, as the control plane knows."""
        return sum(one["open"] for one in self.replicas())

    def replicas(self) -> list[Body]:
        """Return the replicas that have not ended."""
        return [dict(one) for one in self.client._get(f"{self.path}replicas/").json()["results"]]

    def records(self) -> dict[str, str]:
        """Return the sentence of the newest decision of each code."""
        found = self.client._get(f"{self.path}history/").json()["results"]
        return {one["code"]: one["message"] for one in reversed(found)}

    def look(self) -> Body:
        """Return the endpoint as it is now."""
        return dict(self.client._get(self.path).json())

    def codes(self) -> list[str]:
        """Return what was decided, the newest first."""
        return [one["code"] for one in self.client._get(f"{self.path}history/").json()["results"]]

    def wait(self, ready: int, seconds: float = READY_WITHIN) -> None:
        """Wait until so many replicas answer."""
        until(lambda: self.look()["ready"] == ready, seconds, f"{ready} replicas answer", last=self.look)

    def delete(self) -> None:
        """Delete it and wait until its replicas have ended."""
        own = [one["session"] for one in self.replicas()]
        self.client._send("DELETE", self.path)
        ended = lambda: all(self.client.session(one)["status"] in TERMINAL for one in own)  # noqa: E731
        until(ended, READY_WITHIN, "its replicas have ended")

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
                process.wait(patient(60))
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
        self.lost: list[tuple[int, str]] = []  # by the port of the app proxy
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
            except requests.Timeout:
                self.lost.append((self.served.ports[first], "no answer"))
            except BROKEN_IN_ANSWER as error:
                # Refused is not lost: nothing was sent, and a caller tries the other address of the name.
                if "refused" not in str(error).lower():
                    self.lost.append((self.served.ports[first], str(error)[-200:]))
                first = 1 - first

    def _note(self, answer: requests.Response) -> None:
        self.statuses.append(answer.status_code)
        if answer.status_code == 200:
            self.names.add(answer.json()["choices"][0]["message"]["content"])


def _source() -> str:
    return SERVER.read_text().replace("'", "'\\''")


def _settings_of(platform: Platform) -> dict[str, str]:
    """Return the variables with which the platform's own app proxy runs."""
    environ = psutil.Process(platform.pids()["appproxy"]).environ()
    return {name: value for name, value in environ.items() if name not in os.environ or name.startswith("BACKENDAI_")}
