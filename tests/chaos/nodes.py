"""The compute nodes of a rig: agents, and what they run. What is seen here is the machine's word, not the portal's."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.chaos.servers import Kept
from tests.system.engine import PrivateEngine
from tests.system.platform import ROOT, Platform

AGENTS = 2
_MARK = "BACKENDAI_KERNEL_ID"
_KERNEL_FOLDER = re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
_PROGRAMS = ("dockerd", "containerd", "unshare", "nsenter", "ip")


class Missed(Exception):
    """There is nothing that the fault could strike now."""


class NativeNodes:
    """Agents that ``bin/up`` starts, with native processes."""

    host, image, images, backend, agents_of_up = "127.0.0.1", "native", {"native": "process/python"}, "process", AGENTS
    audit = ("audit", "--no-engine")
    engine = None

    def __init__(self) -> None:
        self._known: set[UUID] = set()

    def start(self, platform: Platform, stack: ExitStack, *, portal_port: int) -> None:
        """Take note of the platform, which has its agents already."""
        self._platform = platform

    def agent_pid(self, name: str) -> int | None:
        """Return the process id of an agent; None while it is being started again."""
        return self._platform.pids().get(name) if self._platform.is_up else None

    def remember(self, sessions: Sequence[Mapping[str, Any]]) -> None:
        """Note the kernels of these sessions: by them is found what outlives its supervisor."""
        self._known |= {UUID(kernel["id"]) for session in sessions for kernel in session["kernels"]}

    def kernels(self) -> dict[UUID, bool]:
        """Return every kernel of which anything is left on this machine, and whether it runs."""
        return {kernel: bool(some) for kernel, some in self.processes().items()}

    def processes(self) -> dict[UUID, list[psutil.Process]]:
        """Return the processes of every kernel, its supervisor last."""
        found: dict[UUID, list[psutil.Process]] = {}
        runners: dict[UUID, psutil.Process] = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error, ValueError):
                words = process.cmdline()
                if any(word.endswith("native/runner.py") for word in words):
                    folder = next(filter(None, map(_KERNEL_FOLDER.search, words)), None)
                    if folder and self._is_ours(words):
                        runners[UUID(folder[1])] = process
                elif kernel := process.environ().get(_MARK):
                    found.setdefault(UUID(kernel), []).append(process)
        ours = {kernel: found.get(kernel, []) for kernel in runners.keys() | (found.keys() & self._known)}
        return {kernel: some + [runners[kernel]] * (kernel in runners) for kernel, some in ours.items()}

    def victim(self, chance: random.Random) -> tuple[UUID, list[psutil.Process]]:
        """Return a kernel that runs, at random, and its processes. Raises Missed."""
        running = {kernel: some for kernel, some in self.processes().items() if len(some) > 1}
        if not running:
            raise Missed("no kernel runs")
        kernel = chance.choice(sorted(running))
        return kernel, running[kernel]

    def _is_ours(self, words: Sequence[str]) -> bool:
        folders = [str(self._platform.data)]
        for record in self._platform.data.glob("agents/*/kernels.json"):
            folders += re.findall(r'"(/[^"]+)"', record.read_text())
        return any(word.startswith(folder) for word in words for folder in folders)


class DockerNodes:
    """Agents on a Docker Engine of their own, which may be killed; they are started again a second after their end."""

    image, images, backend, agents_of_up = "tiny", dict[str, str](), "docker", 0
    audit = ("audit",)

    def __init__(self, stack: ExitStack) -> None:
        if os.geteuid() != 0:
            pytest.fail("A private engine needs root: sudo bin/test --all tests/chaos")
        if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
            pytest.fail(f"Programs are missing: {', '.join(missing)}. apt-get install docker.io iproute2 util-linux")
        home = Path(tempfile.mkdtemp(prefix="backendai-engine-"))
        self.engine = stack.enter_context(PrivateEngine(home))
        self.host = self.engine.portal_host
        # A thread of its own: the engine dies with the thread that started it, which thus must outlive the platform.
        self._over, self._watcher = threading.Event(), threading.Thread(target=self._watch, name="engine", daemon=True)
        stack.callback(self._stop)

    def start(self, platform: Platform, stack: ExitStack, *, portal_port: int) -> None:
        """Start the agents, and what starts the engine again."""
        self._platform, self._agents = platform, dict[str, Kept]()
        for number in range(1, AGENTS + 1):
            name = f"agent-{number}"
            token = platform.manage("create_join_token").stdout.strip()
            join = ["--join", f"http://{self.host}:{portal_port}", "--token", token, "--name", name]
            command = self.engine.inside([sys.executable, str(ROOT / "manage.py"), "agent", *join])
            told = platform.environment | {"BACKENDAI_AGENT_DATA": str(platform.data / "agents" / name)}
            kept = Kept("python", command, platform.data.parent / f"{name}.log", told)
            self._agents[name] = stack.enter_context(kept)
        platform.wait_for_agents(AGENTS)
        self._watcher.start()

    def agent_pid(self, name: str) -> int | None:
        """Return the process id of an agent; None while it is being started again."""
        return next((process.pid for process in self._agents[name].family()), None)

    def remember(self, sessions: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing: containers carry the deployment's name."""

    def kernels(self) -> dict[UUID, bool]:
        """Return every kernel of which a container is there, and whether it runs."""
        return {kernel: found["State"]["Running"] for kernel, found in self._platform.containers().items()}

    def victim(self, chance: random.Random) -> UUID:
        """Return a kernel that runs, at random. Raises Missed."""
        running = [kernel for kernel, runs in self.kernels().items() if runs]
        if not running:
            raise Missed("no kernel runs")
        return chance.choice(sorted(running))

    def _stop(self) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join(90)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            if not self.engine.is_up:
                with suppress(AssertionError):  # it may be struck again before it answers
                    self.engine.start()


Nodes = NativeNodes | DockerNodes
