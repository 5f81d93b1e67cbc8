"""The storage hosts of this agent: their paths, whether kernels can mount their folders, and the rules for it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import StartFailed
from backendai.agent.mounts.children import Children
from backendai.base.wire.mounts import HostReport

logger = logging.getLogger(__name__)

_INTERVAL = 5.0
KERNEL_USER = 1000


@dataclass(frozen=True, slots=True)
class MountRules:
    """A backend's rules about mounts. ``uids``: users whose files its kernels can own. ``attaches``: the processes that
    start kernels see mounts which the agent attaches. ``fault``: the reason why it mounts nothing."""

    uids: frozenset[int] = frozenset()
    read_only: bool = True
    attaches: bool = False
    fault: str = ""


def usual_uids() -> frozenset[int]:
    """Return the users whose files kernels can own: the default user, and an unprivileged agent's own."""
    return frozenset({KERNEL_USER} if os.geteuid() == 0 else {KERNEL_USER, os.geteuid()})


@dataclass
class StorageHosts:
    """``paths``: the path of each host on this machine. ``linked``: paths below which directories may become
    folders."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    linked: tuple[Path, ...] = ()
    deployment: str = ""
    children: Children = field(default_factory=Children)

    def __post_init__(self) -> None:
        self._reports: dict[str, HostReport] = {}
        self._attaches: dict[str, bool] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def reports(self) -> list[HostReport]:
        """Return the last report of each host that has been checked."""
        return [self._reports[name] for name in sorted(self._reports)]

    def start(self, rules: Callable[[], MountRules], on_change: Callable[[], None]) -> None:
        """Check the hosts every 5 s in a thread; starts none if there are no hosts."""
        if self.paths:
            self._thread = threading.Thread(target=self._run, args=(rules, on_change), name="storage", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop checking."""
        self._stopped.set()

    def look(self, rules: MountRules) -> bool:
        """Check every host once; returns whether anything but free space has changed."""
        before = {name: (one.fault, one.read_only, one.sub_paths) for name, one in self._reports.items()}
        with ThreadPoolExecutor(max_workers=4) as threads:
            found = list(threads.map(lambda name: self._look(name, rules), self.paths))
        self._reports = {report.name: report for report in found}
        after = {name: (one.fault, one.read_only, one.sub_paths) for name, one in self._reports.items()}
        for name, (fault, *_) in after.items():
            if fault and before.get(name, ("",))[0] != fault:
                logger.warning("storage host %s: %s", name, fault)
        return before != after

    def order(self, host: str, do: str) -> dict[str, Any]:
        """Return the common part of an order for a child. Raises StartFailed if the agent lacks this host."""
        if host not in self.paths:
            raise StartFailed(
                "This agent does not have the storage host {host}: see BACKENDAI_STORAGE_HOSTS.",
                host=host or "?",
                code="storage-missing",
            )
        return {"do": do, "host": host, "root": str(self.paths[host]), "deployment": self.deployment}

    def attaches(self, host: str) -> bool:
        """Return whether this process can attach mounts of this host, as last checked."""
        return self._attaches.get(host, False)

    def _look(self, name: str, rules: MountRules) -> HostReport:
        if rules.fault:
            return HostReport(name=name, fault=rules.fault)
        try:
            found = self.children.run(self.order(name, "look"))
        except StartFailed as error:
            return HostReport(name=name, fault=error.message)
        self._attaches[name] = found["attaches"] and rules.attaches
        if found["uid"] not in rules.uids:
            fits = " or ".join(map(str, sorted(rules.uids)))
            fault = f"Its files belong to user {found['uid']}; kernels of this agent run as user {fits}."
            return HostReport(name=name, fault=fault)
        return HostReport(
            name=name, read_only=rules.read_only, sub_paths=self._attaches[name], free_bytes=found["free"]
        )

    def _run(self, rules: Callable[[], MountRules], on_change: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                if self.look(rules()):
                    on_change()
            except Exception:
                logger.exception("storage hosts cannot be looked at")
            self._stopped.wait(_INTERVAL)
