"""Users at work. They remember what the portal has accepted, and what they do not know because no answer came."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import requests

_ANSWER_SECONDS = 10.0
_MOST_ALIVE = 5
_UNKNOWN = 500  # from this status on, and without any answer, nobody knows what has been done
_RESOURCES = {"cpu": "0.2", "mem": "64m"}
Body = dict[str, Any]


@dataclass(slots=True)
class Launched:
    """A session that the portal has accepted. ``asked_to_end``: perhaps, when no answer came to that."""

    id: str
    wish: Body
    asked_to_end: bool = False


@dataclass(slots=True)
class User:
    """One person with a token and a random mind. ``open``: launches without an answer, by idempotency key."""

    url: str
    token: str
    image: str
    chance: random.Random
    launched: list[Launched] = field(default_factory=list)
    open: dict[str, Body] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)

    def work(self, over: threading.Event) -> None:
        """Launch, end and look until it is over."""
        while not over.wait(self.chance.uniform(0.5, 3.0)):
            self.chance.choice([self._launch, self._launch, self._end, self._look, self._ask_again])()

    def settle(self) -> bool:
        """Ask once more for every launch and end without an answer; returns whether all are answered."""
        for key in list(self.open):
            self._send_launch(key)
        return not self.open

    def end_all(self) -> bool:
        """Ask for the end of every session; returns whether each request was answered."""
        return all([self._send_end(one) for one in self.launched])

    def _launch(self) -> None:
        if sum(not one.asked_to_end for one in self.launched[-_MOST_ALIVE * 3 :]) >= _MOST_ALIVE:
            return self._end()
        wish: Body = {"name": f"c-{uuid4().hex[:8]}", "image": self.image, "resources": _RESOURCES}
        match self.chance.randint(1, 10):
            case 1 | 2 | 3:
                command = f"sleep {self.chance.randint(1, 20)}; exit {self.chance.randint(0, 1)}"
                wish |= {"type": "batch", "startup_command": command}
            case 4:
                wish |= {"cluster_size": 2}
        key = uuid4().hex
        self.open[key] = wish
        return self._send_launch(key)

    def _send_launch(self, key: str) -> None:
        status, body = self._send("POST", "sessions/", self.open[key], {"Idempotency-Key": key})
        if status in (200, 201):
            self.launched.append(Launched(body["id"], self.open.pop(key)))
        elif status < _UNKNOWN:
            self.refused.append(f"{status} {body}")
            del self.open[key]

    def _end(self) -> None:
        left = [one for one in self.launched if not one.asked_to_end]
        if left:
            self._send_end(self.chance.choice(left))

    def _send_end(self, one: Launched) -> bool:
        one.asked_to_end = True
        status, body = self._send("POST", f"sessions/{one.id}/terminate/", {})
        if status not in (200, 409) and status < _UNKNOWN:
            self.refused.append(f"{status} {body}")
        return status < _UNKNOWN

    def _look(self) -> None:
        self._send("GET", "sessions/?page_size=20")
        self._send("GET", "resource-groups/")

    def _ask_again(self) -> None:
        if self.open:
            self._send_launch(self.chance.choice(list(self.open)))

    def _send(
        self, method: str, path: str, body: Body | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and body; ``_UNKNOWN`` or more when nothing is known."""
        try:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.request(
                    method,
                    f"{self.url}/api/v1/{path}",
                    json=body,
                    headers={"Authorization": f"Bearer {self.token}"} | (headers or {}),
                    timeout=_ANSWER_SECONDS,
                )
                status, told = answer.status_code, answer.json() if answer.status_code < _UNKNOWN else None
        except (requests.RequestException, ValueError) as error:
            status, told = _UNKNOWN + 99, str(error)
        self._count(str(status) if status != _UNKNOWN + 99 else "no answer")
        return status, told

    def _count(self, answer: str) -> None:
        self.answers[answer] = self.answers.get(answer, 0) + 1
