"""Images of a pool, which the cluster itself pulls.

This module collects the images that nodes report. A pull ahead of a start is a pod that ends at once.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from backendai.agent.backends.base import SH, BackendError, Fetched, ImageNotFound, Progress
from backendai.agent.backends.docker.images import pull_refusal
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import PART, AgentIdentity, labels_of
from backendai.agent.backends.kubernetes.pod import helper_pod
from backendai.agent.backends.kubernetes.state import StartObstacle, is_over, newest_words, obstacle_of, runs
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.core.messages import Message
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import ImageSighting

_SECONDS = 1.0  # interval of polling a pull
_ACCOUNT_SECONDS = 900.0  # lifetime of a pull's secret in the namespace
_FRESH_SECONDS = 300.0  # longest time between a pull and its start
_MOST_KNOWN = 512
_DIGEST_ONLY = "@"


class PoolImages:
    """``listed`` returns the nodes' images by name, with size and node. ``nodes`` returns the labels of nodes that run
    pods."""

    def __init__(
        self,
        api: Api,
        ours: AgentIdentity,
        settings: PoolSettings,
        *,
        listed: Callable[[], dict[str, tuple[int, str]]],
        nodes: Callable[[], dict[str, str]],
    ) -> None:
        self._api, self._ours, self._settings, self._listed, self._nodes_of_pool = api, ours, settings, listed, nodes
        self._known: dict[str, None] = {}  # images that were started or pulled, oldest first
        self._nodes: dict[str, str] = {}
        self._lacking: set[str] = set()  # images missing on a start's node
        self._fetched: dict[str, float] = {}  # pulled images, and the time of the pull
        self._accounts: dict[str, tuple[str, float]] = {}  # secrets with accounts, and their ends
        self._pulls: set[str] = set()  # names of running pulls, which may take longer than an account lasts
        self._lock = threading.Lock()

    def sightings(self) -> list[ImageSighting]:
        """Return the nodes' images and those that were started: a node reports only fifty."""
        listed = self._listed()
        names = {name for name in {*listed, *self._known} if len(name) <= 255}
        return [ImageSighting(reference=name, size_bytes=listed.get(name, (0, ""))[0]) for name in sorted(names)]

    def has(self, reference: str) -> bool:
        """Return whether some node has the image, and no start has missed it since."""
        return reference not in self._lacking and (reference in self._known or reference in self._listed())

    def seen(self, reference: str) -> None:
        """Record that a kernel was started from the image."""
        self._lacking.discard(reference)
        with self._lock:
            self._known.setdefault(reference)
            while len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def misses(self, reference: str, node: str) -> None:
        """Record that a start did not find the image on this node: it must be pulled there."""
        self._lacking.add(reference)
        self.comes_to(reference, node)

    def comes_to(self, reference: str, node: str) -> None:
        """Record the node to which the image is pulled."""
        if node:
            self._nodes[reference] = node

    def was_just_fetched(self, reference: str) -> bool:
        """Return whether the image was pulled within the last 5 minutes; then a pod on another node may pull it while
        it waits."""
        return time.monotonic() - self._fetched.get(reference, -math.inf) < _FRESH_SECONDS

    def node_of(self, reference: str) -> str:
        """Return the node that pulled the image last; empty: unknown."""
        return self._nodes.get(reference, "")

    def secret_for(self, reference: str) -> str:
        """Return the secret with the account at the image's registry; empty: none."""
        name, until = self._accounts.get(reference, ("", 0.0))
        return name if time.monotonic() < until else ""

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess) -> None:
        """Pull the image to a node of the pool, by a pod that ends at once. Raises ImageNotFound, BackendError."""
        if self._settings.pull_policy == "Never":
            text = "The image {reference} is on no node of the pool, and this pool never fetches images."
            raise ImageNotFound(text, reference=reference)
        name = f"pull-{secrets.token_hex(6)}"
        self._pulls.add(name)
        try:
            secret = self._put_account(name, reference, access)
            self._api.ask("POST", self._api.path("pods"), self._body(name, reference, secret))
            self._wait(name, reference, time.monotonic() + timeout, progress)
        finally:
            with contextlib.suppress(BackendError):  # the next sweep retries
                self._drop("pods", name)
            self._pulls.discard(name)
        self._fetched[reference] = time.monotonic()
        self.seen(reference)

    def sweep(self, found: Mapping[str, list[dict[str, Any]]]) -> None:
        """Delete old pods and secrets of pulls, such as those of a killed agent. ``found``: all objects of this agent,
        by kind."""
        for kind, objects in found.items():
            for one in objects:
                made = datetime.fromisoformat(one["metadata"]["creationTimestamp"])
                is_old = (datetime.now(UTC) - made).total_seconds() > _ACCOUNT_SECONDS
                name = one["metadata"]["name"]
                if labels_of(one).get(PART) in ("pull", "probe") and is_old and name not in self._pulls:
                    self._drop(kind, name)

    def _put_account(self, name: str, reference: str, access: RegistryAccess) -> str:
        if not access.username:
            return ""
        auth = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
        said = {"auths": {_registry_of(reference): {"auth": auth}}}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "labels": {**self._ours.labels(), PART: "pull"}},
            "stringData": {".dockerconfigjson": json.dumps(said)},
        }
        self._api.ask("POST", self._api.path("secrets"), body)
        self._accounts[reference] = (name, time.monotonic() + _ACCOUNT_SECONDS)
        return name

    def _body(self, name: str, reference: str, secret: str) -> dict[str, Any]:
        node = self.node_of(reference)
        return helper_pod(
            name,
            self._settings,
            {**self._ours.labels(), PART: "pull"},
            {"image": reference, "imagePullPolicy": "IfNotPresent", "command": [SH, "-c", "exit 0"]},
            nodes={**self._nodes_of_pool(), **({"kubernetes.io/hostname": node} if node else {})},
            pull_secret=secret,
        )

    def _wait(self, name: str, reference: str, deadline: float, progress: Progress) -> None:
        while True:
            pod = self._api.ask("GET", self._api.path("pods", name))
            if runs(pod) or is_over(pod):
                self.comes_to(reference, str(pod["spec"].get("nodeName") or ""))
                return
            obstacle = obstacle_of(pod)
            if obstacle is not None and obstacle.kind == "image":
                raise pull_refusal(reference, obstacle.words or self._warning(name) or obstacle.reason)
            if time.monotonic() >= deadline:
                words = obstacle.words if obstacle else self._warning(name)
                text = Message("The image {reference} did not come in time. {words}", reference=reference, words=words)
                raise BackendError(text, code="pull-timeout")
            node = pod["spec"].get("nodeName")
            progress(Fetched(None, f"Node {node} fetches it." if node else obstacle.words if obstacle else ""))
            time.sleep(_SECONDS)

    def _warning(self, name: str) -> str:
        query = {"fieldSelector": f"involvedObject.name={name}"}
        return newest_words(self._api.ask("GET", self._api.path("events"), query=query)["items"])[1]

    def _drop(self, kind: str, name: str) -> None:
        self._api.delete(kind, name, {"gracePeriodSeconds": 0})


def image_refusal(reference: str, obstacle: StartObstacle, warning: str) -> ImageNotFound:
    """Return the error of a start. The pull that follows, which has an account, finds the reason."""
    words = obstacle.words or warning or obstacle.reason
    return ImageNotFound(Message("The image {reference} cannot be fetched: {words}", reference=reference, words=words))


def named_images(nodes: Iterable[dict[str, Any]]) -> dict[str, tuple[int, str]]:
    """Return the images that these nodes report: name → size and a node that has it."""
    found: dict[str, tuple[int, str]] = {}
    for node in nodes:
        for image in node["status"].get("images") or []:
            for name in image.get("names") or []:
                if _DIGEST_ONLY not in name and not name.startswith("<none>"):
                    found[name] = (int(image.get("sizeBytes") or 0), node["metadata"]["name"])
                    if name.startswith("docker.io/"):
                        found[name.removeprefix("docker.io/").removeprefix("library/")] = found[name]
    return found


def _registry_of(reference: str) -> str:
    first, slash, _ = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "https://index.docker.io/v1/"
