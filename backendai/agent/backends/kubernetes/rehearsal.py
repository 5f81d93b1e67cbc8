"""Tests whether the cluster would accept a pod, by a dry run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from backendai.agent.backends.kubernetes.api.client import Api, ApiError
from backendai.agent.backends.kubernetes.api.names import AgentIdentity

_KEPT_SECONDS = 110.0  # long enough, as the next start detects a revoked role anyway
_KEPT_FAULT_SECONDS = 20.0
# The same resources as kernels name, as a quota rejects pods without them.
_LITTLE = {"cpu": "1m", "memory": "1Mi"}
_RESOURCES = {
    "requests": {**_LITTLE, "ephemeral-storage": "0"},
    "limits": {**_LITTLE, "ephemeral-storage": "1Mi"},
}


class Rehearsal:
    """Caches the result: nearly two minutes, a refusal 20 s."""

    def __init__(self, api: Api, ours: AgentIdentity, clock: Callable[[], float]) -> None:
        self._api, self._ours, self._clock = api, ours, clock
        self._fault, self._asked_at = "", -math.inf

    def fault(self) -> str:
        """Return why the cluster would refuse a pod; empty if it would accept one. Raises BackendError."""
        kept = _KEPT_FAULT_SECONDS if self._fault else _KEPT_SECONDS
        if self._clock() - self._asked_at >= kept:
            self._fault, self._asked_at = self._ask(), self._clock()
        return self._fault

    def doubt(self) -> None:
        """Repeat the test at the next call, as the cluster has just refused a request."""
        self._asked_at = -math.inf

    def _ask(self) -> str:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"try-{time.time_ns():x}", "labels": self._ours.labels()},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": _RESOURCES}]},
        }
        try:
            self._api.ask("POST", self._api.path("pods"), pod, query={"dryRun": "All"})
        except ApiError as error:
            return "" if "exceeded quota" in error.words or error.status in (400, 422) else error.message
        return ""
