"""Names of a session's kernels, written into a file of each pod."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backendai.agent.backends.base import SH, TOOLS, BackendError
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import CLUSTER, SESSION, labels_of, notes_of
from backendai.agent.backends.kubernetes.api.streams import output_of
from backendai.agent.backends.kubernetes.pod import ALL_ARE_HERE, HOSTS, SOME_ARE_HERE
from backendai.agent.backends.kubernetes.state import runs, uid_of
from backendai.agent.backends.shared.starting import KeyedLocks

logger = logging.getLogger(__name__)

_AT_ONCE = 8
# Keeps the file's beginning with the pod's own name, and replaces earlier additions.
_WRITE = f"""
{TOOLS}
kept=$(sed '/^{ALL_ARE_HERE}/,$d' {HOSTS}); printf '%s\\n%s\\n' "$kept" "$0" >{HOSTS}
""".strip()
Pod = dict[str, Any]


class Clusters:
    """Writes the kernels' names of cluster sessions. The last kernel of a session that starts makes all known to all;
    the next sweep adds late kernels, and those that a killed agent missed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._told: dict[str, str] = {}  # the names that each pod has
        self._locks, self._guard = KeyedLocks(), threading.Lock()

    def introduce(self, pods: list[Pod]) -> None:
        """Write the names for each complete session among these pods."""
        for whole, there in _sessions(pods):
            if whole:
                self._write(there, ALL_ARE_HERE)

    def sweep(self, pods: list[Pod]) -> None:
        """Write the known names for each session. ``pods``: all pods of the agent."""
        with self._guard:
            here = {uid_of(pod) for pod in pods}
            self._told = {uid: names for uid, names in self._told.items() if uid in here}
        for whole, there in _sessions(pods):
            self._write(there, ALL_ARE_HERE if whole else SOME_ARE_HERE)

    def _write(self, pods: list[Pod], mark: str) -> None:
        names = "\n".join([mark, *sorted(f"{pod['status']['podIP']} {pod['spec']['hostname']}" for pod in pods)])
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda pod: self._tell(pod, names), pods))

    def _tell(self, pod: Pod, names: str) -> None:
        uid, name = uid_of(pod), pod["metadata"]["name"]
        with self._locks.held(uid):  # one lock per pod, so that a hanging pod delays only its session
            if self._told.get(uid) == names:
                return
            try:
                _, code = output_of(self._api, name, [SH, "-c", _WRITE, names])
            except BackendError as error:
                logger.warning("pod %s gets no names yet: %s", name, error.message)
                return
            if code == 0:
                self._told[uid] = names


def _sessions(pods: list[Pod]) -> list[tuple[bool, list[Pod]]]:
    """Return the running kernels of each cluster session, and whether they are complete."""
    sessions: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if int(notes_of(pod).get(CLUSTER) or 1) > 1 and runs(pod) and pod["status"].get("podIP"):
            sessions[labels_of(pod)[SESSION]].append(pod)
    return [(len(there) == int(notes_of(there[0])[CLUSTER]), there) for there in sessions.values()]
