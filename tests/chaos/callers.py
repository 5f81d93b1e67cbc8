"""Callers of an inference endpoint: they count every answer, and what came to no answer at all."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from tests.chaos.rig import Rig
from tests.patience import until
from tests.system.platform import READY_WITHIN

CALLERS, REPLICAS = 3, 2
_PATIENCE = 45.0  # longer than a request waits for a replica
_SERVERS = {"process": "python3 -m http.server --bind $HOST $PORT", "docker": "httpd -f -p $HOST:$PORT -h ."}
# What a caller may be told while its replicas, their agents or the database are struck. Never: that its token is wrong.
_EXCUSED = {"no-replica", "cannot-wake", "cannot-start", "queued-too-long", "replica-broken", "answer-timeout"}
# What may end a connection without an answer, and how many answers each costs at most.
_BREAKS = ("kill-appproxy", "kill-supervisor", "freeze-appproxy", "kill-parent", "fill-disk")
_OF_REPLICAS = ("kill-kernel", "kill-kernel-supervisor", "kill-container", "remove-container", "kill-engine")


class Callers:
    """An endpoint of two replicas and those who ask it. ``answers``: by status and code."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self._client = rig, rig.platform.client
        self.answers: Counter[str] = Counter()
        revision: dict[str, Any] = {"image": rig.nodes.image, "probe_path": "/", "port": 8123, "startup_timeout": 60}
        revision |= {"command": f"echo served >index.html; exec {_SERVERS[rig.nodes.backend]}"}
        wish = {"name": "chat", "minimum": REPLICAS, "maximum": REPLICAS, "resources": {"cpu": "0.2", "mem": "64m"}}
        endpoint = self._client.post("endpoints/", wish | revision)
        self._path, self._host = f"endpoints/{endpoint['id']}/", endpoint["url"].partition("://")[2].rstrip("/")
        self._token = self._client.post(f"{self._path}tokens/", {"name": "chaos"})["token"]
        until(self.serves, READY_WITHIN, "the endpoint serves", last=self.look)

    def work(self, over: threading.Event) -> None:
        """Ask again and again until it is over."""
        with ThreadPoolExecutor(CALLERS) as threads:
            for _ in range(CALLERS):
                threads.submit(self._call, over)

    def look(self) -> dict[str, Any]:
        """Return the endpoint as it is now."""
        return dict(self._client._get(self._path).json())

    def serves(self) -> bool:
        """Return whether it has all its replicas and answers."""
        return bool(self.look()["health"] == "serving") and self._ask() == "200"

    def retry(self) -> None:
        """Start replicas now where starts failed."""
        self._client._send("POST", f"{self._path}retry/", json={})

    def delete(self) -> bool:
        """Delete the endpoint; returns whether the portal has answered."""
        return self._client._send("DELETE", self._path).status_code in (204, 404, 409)

    def unexcused(self) -> list[str]:
        """Return the kinds of answers that no fault explains."""
        known = {
            "200",
            "refused",
            "no answer",
            *(f"{status} {code}" for status in (502, 503, 504) for code in _EXCUSED),
        }
        return sorted(self.answers.keys() - known)

    def most_lost(self, inflicted: Counter[str]) -> int:
        """Return how many requests may have come to no answer: those open in a proxy or a replica that was struck."""
        return CALLERS * sum(inflicted[kind] for kind in (*_BREAKS, *_OF_REPLICAS))

    def _call(self, over: threading.Event) -> None:
        while not over.wait(0.2):
            self.answers[self._ask()] += 1

    def _ask(self) -> str:
        address = f"http://{self._rig.nodes.host}:{self._host.rpartition(':')[2]}/"
        headers = {"Host": self._host, "Authorization": f"Bearer {self._token}"}
        try:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.get(address, headers=headers, timeout=_PATIENCE)
                said = answer.json() if answer.status_code in (502, 503, 504) else {}
        except (requests.RequestException, ValueError) as error:
            # Refused is not lost: nothing was sent.
            return "refused" if "refused" in str(error).lower() else "no answer"
        return f"{answer.status_code} {said.get('code', '')}".strip()
