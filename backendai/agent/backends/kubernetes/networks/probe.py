"""Tests once, at the agent's start, whether the cluster's network separates kernels, as no API reports it.

One pod listens. A pod of the same session must reach it, and a pod of another session must not.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from backendai.agent.backends.base import SH, BackendError
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import KERNEL, PART, SESSION, AgentIdentity
from backendai.agent.backends.kubernetes.networks.policies import Policies
from backendai.agent.backends.kubernetes.pod import helper_pod
from backendai.agent.backends.kubernetes.state import is_over, main_state, runs
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.wire.messages import Note

logger = logging.getLogger(__name__)

_SECONDS, _LOOK_SECONDS = 90.0, 1.0
_PORT = 9000
_LISTEN = f"while :; do echo here | nc -l -p {_PORT}; done"
_TRY = f'for n in 1 2 3 4 5; do nc -w 2 "$0" {_PORT} </dev/null | grep -q here && exit 0; sleep 1; done; exit 1'
Pod = dict[str, Any]


class Probe:
    """Runs the test once in a thread; ``notes`` returns its result."""

    def __init__(self, api: Api, ours: AgentIdentity, settings: PoolSettings, policies: Policies) -> None:
        self._api, self._ours, self._settings, self._policies = api, ours, settings, policies
        self.verdict = "" if settings.probe_image else "untried"  # kept, open, untried, or an error
        self._starting = threading.Lock()
        self._has_started = False

    def start(self) -> None:
        """Start the test. Repeatable."""
        with self._starting:
            if self._settings.probe_image and not self._has_started:
                self._has_started = True
                threading.Thread(target=self._run, name="probe", daemon=True).start()

    def notes(self) -> list[Note]:
        """Return a note if sessions reach each other, or if that is unknown; nothing during the test."""
        if self.verdict in ("", "kept"):
            return []
        if self.verdict == "open":
            text = "The cluster's network enforces no network policies: every session reaches the ports of all others."
            fix = "Install a network plugin that enforces them, such as Calico or Cilium, or let no strangers share it."
            return [Note(code="network-open", message=text, fix=fix)]
        text = "Nobody knows whether the cluster's network keeps sessions apart"
        why = "" if self.verdict == "untried" else f" ({self.verdict})"
        fix = "Set BACKENDAI_KUBERNETES_PROBE_IMAGE to an image with sh and nc, such as busybox, and restart the agent."
        return [Note(code="network-untried", message=f"{text}{why}.", fix=fix)]

    def _run(self) -> None:
        names = [f"probe-{secrets.token_hex(4)}-{role}" for role in ("listens", "friend", "stranger")]
        try:
            self.verdict = self._try(*names)
        except BackendError as error:
            self.verdict = error.message.rstrip(".")
        except Exception:
            logger.exception("the network could not be tried")
            self.verdict = "the trial failed, see the agent's log"
        for name in names:
            with contextlib.suppress(BackendError):  # a sweep deletes the rest
                self._api.delete("pods", name, {"gracePeriodSeconds": 0})

    def _try(self, listens: str, friend: str, stranger: str) -> str:
        session = str(uuid4())
        self._policies.ensure_for(session)
        self._make(listens, session, [SH, "-c", _LISTEN])
        there = self._wait(listens, lambda pod: runs(pod) and bool(pod["status"].get("podIP")))
        if there is None:
            return f"the pod of the trial does not run with {self._settings.probe_image}"
        tried = [SH, "-c", _TRY, str(there["status"]["podIP"])]
        self._make(friend, session, tried)
        self._make(stranger, str(uuid4()), tried)
        ends = [self._wait(name, is_over) for name in (friend, stranger)]
        reached = [pod is not None and (main_state(pod).get("terminated") or {}).get("exitCode") == 0 for pod in ends]
        if reached[1]:
            return "open"
        return "kept" if reached[0] else "the pods of the trial do not even reach those of their own session"

    def _wait(self, name: str, is_so: Callable[[Pod], bool]) -> Pod | None:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            pod = self._api.ask("GET", self._api.path("pods", name))
            if is_so(pod):
                return pod
            time.sleep(_LOOK_SECONDS)
        return None

    def _make(self, name: str, session: str, command: list[str]) -> None:
        labels = {**self._ours.labels(), PART: "probe", KERNEL: str(uuid4()), SESSION: session}
        main = {"image": self._settings.probe_image, "command": command}
        body = helper_pod(name, self._settings, labels, main, nodes=self._settings.nodes)
        self._api.ask("POST", self._api.path("pods"), body)
