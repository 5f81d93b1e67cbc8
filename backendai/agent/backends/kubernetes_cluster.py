"""Kernels of one session that find and reach each other, and no others: names in a file, and network policies."""

from __future__ import annotations

import logging
import shlex
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes_api import Api, ApiError
from backendai.agent.backends.kubernetes_names import CLUSTER, KERNEL, PART, SESSION, Ours, labels_of, notes_of
from backendai.agent.backends.kubernetes_pod import HOSTS, HOSTS_MARK
from backendai.agent.backends.kubernetes_state import runs, uid_of
from backendai.agent.backends.kubernetes_streams import output_of
from backendai.wire.messages import Note

logger = logging.getLogger(__name__)

_GROUP = "networking.k8s.io/v1"
_AT_ONCE = 8
_METADATA = "169.254.0.0/16"  # where clouds tell machines their credentials
Pod = dict[str, Any]


class Clusters:
    """Names of the kernels of sessions. A name is written where its bearer is known by address; one that came later is
    added, and an agent that was killed in between finds it with its next sweep."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._told: dict[str, str] = {}  # by pod: which names it has
        self._lock = threading.Lock()

    def introduce(self, pods: list[Pod]) -> None:
        """Write down names for every session of these pods that is there as a whole."""
        sessions: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            if int(notes_of(pod).get(CLUSTER) or 1) > 1:
                sessions[labels_of(pod)[SESSION]].append(pod)
        with self._lock:
            for one in sessions.values():
                there = [pod for pod in one if runs(pod) and pod["status"].get("podIP")]
                if there and len(there) == int(notes_of(there[0])[CLUSTER]):
                    self._write(there)
            here = {uid_of(pod) for pod in pods}
            self._told = {uid: names for uid, names in self._told.items() if uid in here}

    def _write(self, pods: list[Pod]) -> None:
        lines = sorted(f"{pod['status']['podIP']} {pod['spec']['hostname']}" for pod in pods)
        names = "\n".join([HOSTS_MARK, *lines])

        def write(pod: Pod) -> None:
            if self._told.get(uid_of(pod)) == names:
                return
            # A pod's own name is in the file already; what was written before is replaced.
            script = (
                f"kept=$(sed '/^{HOSTS_MARK}/,$d' {HOSTS}); printf '%s\\n%s\\n' \"$kept\" {shlex.quote(names)} >{HOSTS}"
            )
            try:
                _, code = output_of(self._api, pod["metadata"]["name"], ["sh", "-c", script])
            except BackendError as error:
                logger.warning("pod %s gets no names yet: %s", pod["metadata"]["name"], error.message)
                return
            if code == 0:
                self._told[uid_of(pod)] = names

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(write, pods))


class Policies:
    """Network policies: nobody but the agent reaches a kernel, and kernels of one session each other. Whether they are
    kept is up to the cluster's network."""

    def __init__(self, api: Api, ours: Ours) -> None:
        self._api, self._ours = api, ours
        self._made: set[str] = set()
        self._fault = ""

    def ensure(self) -> None:
        """Make the policy of all kernels; what is in the way is a note. Raises BackendError without an answer."""
        try:
            self._put(f"backendai-{self._ours.agent}", self._for_all(), {PART: "policy"})
            self._fault = ""
        except ApiError as error:
            self._fault = error.message

    def ensure_for(self, session: str) -> None:
        """Let the kernels of a session reach each other."""
        name = f"backendai-{session}"
        if name in self._made or self._fault:
            return
        selector = {"matchLabels": {**self._ours.labels(), SESSION: session}}
        spec = {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": selector}]}],
        }
        self._put(name, spec, {PART: "policy", SESSION: session})
        self._made.add(name)

    def sweep(self, sessions: set[str]) -> None:
        """Remove the policies of sessions that are not among these."""
        if self._fault:
            return
        selector = self._ours.selector(SESSION, f"{PART}=policy")
        path = self._api.path("networkpolicies", group=_GROUP)
        for one in self._api.ask("GET", path, query={"labelSelector": selector})["items"]:
            if labels_of(one)[SESSION] not in sessions:
                self._made.discard(one["metadata"]["name"])
                self._delete(one["metadata"]["name"])

    def notes(self) -> list[Note]:
        """Return what keeps the policies from being there, and that nobody knows whether they are kept."""
        if not self._fault:
            return []
        return [
            Note(
                code="no-network-policies",
                message=f"Kernels are not kept apart on the network: {self._fault}",
                fix="Let the agent's Role create network policies.",
            )
        ]

    def _for_all(self) -> dict[str, Any]:
        mine = {"podSelector": {"matchLabels": {PART: "agent"}}}
        return {
            "podSelector": {"matchLabels": self._ours.labels(), "matchExpressions": [_EXISTS]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [mine]}],
            "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [_METADATA]}}]}],
        }

    def _put(self, name: str, spec: dict[str, Any], labels: dict[str, str]) -> None:
        body: dict[str, Any] = {
            "apiVersion": _GROUP,
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "labels": {**self._ours.labels(), **labels}},
            "spec": spec,
        }
        try:
            self._api.ask("POST", self._api.path("networkpolicies", group=_GROUP), body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._api.ask(
                "PATCH",
                self._api.path("networkpolicies", name, group=_GROUP),
                {"spec": spec},
                content="application/merge-patch+json",
            )

    def _delete(self, name: str) -> None:
        try:
            self._api.ask("DELETE", self._api.path("networkpolicies", name, group=_GROUP))
        except ApiError as error:
            if error.status != 404:
                raise


_EXISTS = {"key": KERNEL, "operator": "Exists"}
