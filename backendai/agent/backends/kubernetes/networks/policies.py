"""Network policies: only the agent reaches kernels, kernels of one session reach each other, no kernel reaches the API.

The cluster's network decides whether it enforces them.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from typing import Any

from backendai.agent.backends.kubernetes.api.client import MERGE_PATCH, Api, ApiError
from backendai.agent.backends.kubernetes.api.names import KERNEL, PART, PREFIX, SESSION, AgentIdentity, labels_of
from backendai.agent.backends.kubernetes.networks.borders import Borders
from backendai.base.wire.messages import Note

_GROUP = "networking.k8s.io/v1"
_CONTENT = f"{PREFIX}content"  # a hash of the policy as created, as the API adds defaults to it
_NEW_SECONDS = 180.0
_EXISTS = {"key": KERNEL, "operator": "Exists"}


class Policies:
    """The policies of one agent in its namespace, which it may share with other agents."""

    def __init__(self, api: Api, ours: AgentIdentity, borders: Borders) -> None:
        self._api, self._ours, self._borders = api, ours, borders
        self._name = f"backendai-{ours.agent}-{_mark_of(ours.deployment)}"
        self._there: set[str] = set()
        self._made_at: dict[str, float] = {}  # creation times, as a session's first pod may not exist yet
        self._fault = ""

    def keep(self, sessions: set[str] | None = None) -> None:
        """Create the policy for all kernels, and delete those of sessions that are not in ``sessions`` (None: delete
        none). Refusals become a note. One request if nothing changes. Raises BackendError without an answer."""
        try:
            found = {one["metadata"]["name"]: one for one in self._listed()}
            wanted = self._body(self._name, self._for_all(), {PART: "policy"})
            content = labels_of(found[self._name]).get(_CONTENT) if self._name in found else None
            if content != labels_of(wanted)[_CONTENT]:
                self._put(wanted)
            over = {name for name, one in found.items() if sessions is not None and self._is_over(one, sessions)}
            for name in over:
                self._api.delete("networkpolicies", name, group=_GROUP)
            self._there = {self._name, *found} - over
            self._made_at = {name: at for name, at in self._made_at.items() if name not in over}
            self._fault = ""
        except ApiError as error:
            self._fault = error.message

    def ensure_for(self, session: str) -> None:
        """Create the policy by which a session's kernels reach each other."""
        name = f"backendai-{session}"
        if name in self._there or self._fault:
            return
        selector = {"matchLabels": {**self._ours.labels(), SESSION: session}}
        spec = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": selector}]}]}
        self._put(self._body(name, spec, {PART: "policy", SESSION: session}))
        self._there.add(name)
        self._made_at[name] = time.monotonic()

    def notes(self) -> list[Note]:
        """Return a note if the policies cannot be created."""
        if not self._fault:
            return []
        return [
            Note(
                code="no-network-policies",
                message=f"Kernels are not kept apart on the network: {self._fault}",
                fix="Let the agent's Role create network policies.",
            )
        ]

    def _is_over(self, policy: dict[str, Any], sessions: set[str]) -> bool:
        """Return whether a policy is obsolete: its session has ended, or an earlier version created it for all
        kernels."""
        name = policy["metadata"]["name"]
        is_new = time.monotonic() - self._made_at.get(name, -math.inf) < _NEW_SECONDS
        return name != self._name and labels_of(policy).get(SESSION) not in sessions and not is_new

    def _for_all(self) -> dict[str, Any]:
        agents = {"podSelector": {"matchLabels": {PART: "agent"}}}
        return {
            "podSelector": {"matchLabels": self._ours.labels(), "matchExpressions": [_EXISTS]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [agents, *self._borders.sources()]}],
            "egress": [{"to": self._borders.ways_out()}],
        }

    def _body(self, name: str, spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
        content = {_CONTENT: _mark_of(json.dumps(spec, sort_keys=True))}
        return {
            "apiVersion": _GROUP,
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "labels": {**self._ours.labels(), **labels, **content}},
            "spec": spec,
        }

    def _listed(self) -> list[dict[str, Any]]:
        query = {"labelSelector": self._ours.selector(f"{PART}=policy")}
        return list(self._api.ask("GET", self._api.path("networkpolicies", group=_GROUP), query=query)["items"])

    def _put(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        try:
            self._api.ask("POST", self._api.path("networkpolicies", group=_GROUP), body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            path = self._api.path("networkpolicies", name, group=_GROUP)
            self._api.ask("PATCH", path, body, content=MERGE_PATCH)


def _mark_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
