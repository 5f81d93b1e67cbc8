"""Watches this agent's pods: one watch per agent, restarted whenever it ends.

Its data only shows that a pod has changed; waiting callers regularly ask the API itself.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.names import KERNEL, AgentIdentity
from backendai.agent.backends.kubernetes.state import is_kernel, is_over, kernel_of, uid_of

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 240  # the server's time limit of a watch, as proxies may silently drop an idle one
_SILENCE_SECONDS = 300.0
_LONGEST_REST = 30.0
_LOOK_SECONDS = 2.0  # interval of a waiting caller's requests
T = TypeVar("T")
Pod = dict[str, Any]


class Feed:
    """Keeps the newest state of each pod. ``rest``: seconds of pause after the first failure."""

    def __init__(self, api: Api, ours: AgentIdentity, *, rest: float = 1.0) -> None:
        self._api, self._ours, self._first_rest = api, ours, rest
        self._pods: dict[str, Pod] = {}
        self._news = threading.Condition()
        self._listeners: list[queue.SimpleQueue[UUID | None]] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.lists_taken = 0  # number of list requests
        self.on_over: Callable[[UUID], None] = lambda _: None  # called for each pod that has ended, possibly twice

    def start(self) -> None:
        """Start to watch. Repeatable."""
        with self._starting:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop watching; ends the iteration of all listeners."""
        self._stopped.set()
        self._tell_end()

    def wait(self, name: str, look: Callable[[Pod | None], T | None], *, seconds: float) -> T | None:
        """Return the first result of ``look`` for the pod of this name; None after ``seconds``. ``look`` is called with
        the API's answers (None: no such pod) and the watch's changes. Raises BackendError."""
        self.start()
        deadline = time.monotonic() + seconds
        while True:
            if (answer := look(self._ask(name))) is not None:
                return answer
            until = min(deadline, time.monotonic() + _LOOK_SECONDS)
            with self._news:
                seen = self._pods.get(name)
                while (left := until - time.monotonic()) > 0:
                    self._news.wait(left)
                    newest = self._pods.get(name)
                    if newest is not None and newest is not seen:
                        seen = newest
                        if (answer := look(newest)) is not None:
                            return answer
            if time.monotonic() >= deadline:
                return look(self._ask(name))

    def ends(self) -> Iterator[UUID]:
        """Yield each kernel whose pod has ended, until the watch breaks."""
        self.start()
        heard: queue.SimpleQueue[UUID | None] = queue.SimpleQueue()
        self._listeners.append(heard)
        try:
            while not self._stopped.is_set() and (kernel_id := heard.get()) is not None:
                yield kernel_id
        finally:
            self._listeners.remove(heard)

    def _ask(self, name: str) -> Pod | None:
        try:
            return self._api.ask("GET", self._api.path("pods", name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _run(self) -> None:
        rest = self._first_rest
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._follow()
                broke = time.monotonic() - began < self._first_rest  # the server ended the watch at once
            except BackendError as error:
                logger.info("the watch on pods broke off: %s", error.message)
                broke = True
            except Exception:
                logger.exception("watching pods failed")
                broke = True
            self._tell_end()
            rest = min(rest * 2, _LONGEST_REST) if broke else self._first_rest
            if broke:
                self._stopped.wait(rest * random.uniform(0.5, 1.0))

    def _follow(self) -> None:
        """List the pods, then watch from that list on; returns when the watch ends."""
        selector = self._ours.selector(KERNEL)
        listed = self._api.ask("GET", self._api.path("pods"), query={"labelSelector": selector})
        self.lists_taken += 1
        version = listed["metadata"]["resourceVersion"]
        with self._news:
            self._pods = {pod["metadata"]["name"]: pod for pod in listed["items"]}
            self._news.notify_all()
        self._tell(listed["items"])
        while not self._stopped.is_set():
            query = {
                "labelSelector": selector,
                "watch": "1",
                "resourceVersion": version,
                "timeoutSeconds": str(_WATCH_SECONDS),
                "allowWatchBookmarks": "true",
            }
            started_at, before = time.monotonic(), version
            with self._api.lines(self._api.path("pods"), query, silence=_SILENCE_SECONDS) as events:
                for event in events:
                    if event.get("type") == "ERROR":  # 410: the server no longer has the changes since then
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._take(event)
            if version == before and time.monotonic() - started_at < _WATCH_SECONDS / 2:
                return  # a proxy dropped the watch: list again

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "BOOKMARK":
            return
        pod = event["object"]
        name = pod["metadata"]["name"]
        with self._news:
            if event["type"] == "DELETED":
                kept = self._pods.get(name)
                if kept is not None and uid_of(kept) == uid_of(pod):
                    del self._pods[name]
            else:
                self._pods[name] = pod
            self._news.notify_all()
        self._tell([pod])

    def _tell(self, pods: list[Pod]) -> None:
        for pod in pods:
            if is_kernel(pod) and is_over(pod):
                self.on_over(kernel_of(pod))
                for listener in list(self._listeners):
                    listener.put(kernel_of(pod))

    def _tell_end(self) -> None:
        for listener in list(self._listeners):
            listener.put(None)
