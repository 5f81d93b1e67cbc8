"""The platform as a script on the user's machine sees it: REST, and the terminal's websocket."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import requests
from requests.exceptions import ChunkedEncodingError
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.patience import patient, until

STARTED_WITHIN = 45.0
ENDED_WITHIN = 30.0
TERMINAL = ("TERMINATED", "CANCELLED", "ERROR")
_ANSWER_SECONDS = 15.0
_PATIENCE = 30.0
Body = dict[str, Any]


def fresh(name: str) -> str:
    """Return a name that the first try of a test, on the same platform, has not taken."""
    return f"{name}-{uuid4().hex[:4]}"


class Client:
    """One user with a bearer token. A portal that refuses the connection, or drops it, is asked again for a while."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self._headers = {"Authorization": f"Bearer {token}"}

    def launch(self, name: str = "", **fields: Any) -> Body:
        """Launch a session of the tiny image with 0.5 cores and 64 MiB unless told otherwise; returns its body."""
        wish = {"name": name or f"s-{uuid4().hex[:8]}", "image": "tiny", "resources": {"cpu": "0.5", "mem": "64m"}}
        answer = self._send("POST", "sessions/", json=wish | fields, headers={"Idempotency-Key": uuid4().hex})
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    def session(self, session_id: str) -> Body:
        """Return a session as it is now."""
        return dict(self._get(f"sessions/{session_id}/").json())

    def sessions(self) -> list[Body]:
        """Return all sessions that one sees, the newest first."""
        found: list[Body] = []
        path: str | None = "sessions/?page_size=100"
        while path:
            page = self._get(path).json()
            found += page["results"]
            path = page["next"] and page["next"].partition("/api/v1/")[2]
        return found

    def terminate(self, session_id: str) -> None:
        """Ask for the end of a session; ended already is fine."""
        answer = self._send("POST", f"sessions/{session_id}/terminate/", json={})
        assert answer.status_code in (200, 409), answer.text

    def log(self, session_id: str) -> str:
        """Return the log of the main kernel."""
        return self._get(f"sessions/{session_id}/logs/").text

    def history(self, session_id: str) -> list[Body]:
        """Return the scheduling history, the newest row first."""
        return list(self._get(f"sessions/{session_id}/history/").json()["results"])

    def make_checker(self, wish: Body) -> Body:
        """Make an idle checker, as a superadmin."""
        answer = self._send("POST", "idle-checkers/", json=wish)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def post(self, path: str, body: Body) -> Body:
        """Make or begin something at an address of the API; returns its body."""
        answer = self._send("POST", path, json=body)
        assert answer.status_code in (201, 202), answer.text
        return dict(answer.json())

    def keep_home(self, session_id: str, **wish: Any) -> Body:
        """Begin to keep the home folder of a session; returns the new folder."""
        answer = self._send("POST", f"sessions/{session_id}/keep-home/", json=wish)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    def folder(self, folder_id: str) -> Body:
        """Return a folder as it is now."""
        return dict(self._get(f"folders/{folder_id}/").json())

    def idle(self, session_id: str) -> list[Body]:
        """Return what the idle checkers say of a session."""
        return list(self._get(f"sessions/{session_id}/idle/").json()["results"])

    def group(self, name: str = "default") -> Body:
        """Return a resource group with what is taken and free in it."""
        groups = self._get("resource-groups/").json()["results"]
        return next(dict(group) for group in groups if group["name"] == name)

    def agents(self) -> list[Body]:
        """Return the agents."""
        return list(self._get("agents/").json()["results"])

    def unknown_kernels(self) -> list[Body]:
        """Return the kernels that the database does not know."""
        return list(self._get("unknown-kernels/").json()["results"])

    def adopt(self, number: int) -> None:
        """Adopt the session of an unknown kernel, as a superadmin."""
        answer = self._send("POST", f"unknown-kernels/{number}/adopt/", json={})
        assert answer.status_code == 200, answer.text

    def wait_for(self, session_id: str, *statuses: str, seconds: float = STARTED_WITHIN) -> Body:
        """Return the session once it is in one of these statuses; one that has ended otherwise fails at once."""
        seen: Body = {}

        def arrived() -> bool:
            seen.update(self.session(session_id))
            if seen["status"] in TERMINAL and seen["status"] not in statuses:
                raise AssertionError(f"{seen['status']} instead of {statuses}: {seen}\n{self.history(session_id)}")
            return seen["status"] in statuses

        until(arrived, seconds, f"session {session_id} is {' or '.join(statuses)}", last=lambda: seen)
        return seen

    def wait_until_running(self, session_id: str, seconds: float = STARTED_WITHIN) -> Body:
        """Return the session once it runs."""
        return self.wait_for(session_id, "RUNNING", seconds=seconds)

    def end(self, *session_ids: str) -> list[Body]:
        """End sessions and return them once they have ended."""
        for session_id in session_ids:
            self.terminate(session_id)
        return [self.wait_for(session_id, *TERMINAL, seconds=ENDED_WITHIN) for session_id in session_ids]

    @contextmanager
    def terminal(self, session_id: str) -> Iterator[Terminal]:
        """Open the web terminal of a running session."""
        address = f"{self.url.replace('http', 'ws', 1)}/ws/sessions/{session_id}/terminal/?ack=0"
        with connect(address, additional_headers=self._headers, compression=None, proxy=None) as socket:
            yield Terminal(socket)

    def _get(self, path: str) -> requests.Response:
        answer = self._send("GET", path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer

    def _send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **body: Any) -> requests.Response:
        deadline = time.monotonic() + patient(_PATIENCE)
        while True:
            try:
                with requests.Session() as session:
                    session.trust_env = False
                    return session.request(
                        method,
                        f"{self.url}/api/v1/{path}",
                        headers=self._headers | (headers or {}),
                        timeout=patient(_ANSWER_SECONDS),
                        **body,
                    )
            except (requests.ConnectionError, ChunkedEncodingError):  # not there, or killed in the middle of its answer
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


class Terminal:
    """An open terminal. ``BROKEN`` are the errors of one that was closed by the other side."""

    BROKEN = (WebSocketException, TimeoutError)

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._seen = ""

    def run(self, command: str, answer: str, seconds: float = 15.0) -> None:
        """Type a command and read until ``answer`` (a regular expression) comes; the echo of the keys may not match."""
        self._seen = ""
        self._socket.send(f"{command}\n".encode())
        deadline = time.monotonic() + patient(seconds)
        while not re.search(answer, self._seen):
            left = deadline - time.monotonic()
            assert left > 0, f"{answer!r} did not come after {command!r}: {self._seen!r}"
            try:
                frame = self._socket.recv(timeout=left)
            except TimeoutError:
                continue
            self._seen += frame.decode(errors="replace") if isinstance(frame, bytes) else ""
