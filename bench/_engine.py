"""The other side of the comparison: the engine alone, asked through its own client for the very same containers."""

from __future__ import annotations

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import docker
from docker.errors import ImageNotFound

from backendai.agent.backends.docker.create import container_body
from backendai.agent.backends.docker.disk.scratch import Scratch
from backendai.agent.backends.docker.engine import PREFIX
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import KernelSpec
from bench._portal import BARE, IMAGE, RESOURCES, ROOT, Portal, say

_CALM_SECONDS = 0.8  # the engine tidies up long after a removal: 0.4 s later a start still takes 90 ms more
_REST_SECONDS = 4.0  # a fresh platform has made in advance what it wants to have
_SETTLE_SECONDS = 120.0


class BareEngine:
    """Creates and starts containers with the agent's own options on the agent's own network, and nothing else."""

    def __init__(self, portal: Portal, scratch: Path) -> None:
        self._own = threading.local()
        self._scratch = Scratch(scratch, engine_socket=None)
        self._cpus = int(self._client.info()["NCPU"])
        self._label = f"{PREFIX}deployment={portal.deployment()}"
        self._network = next(
            found["Name"]
            for found in self._client.networks(filters={"label": [self._label]})
            if f"{PREFIX}session" not in found["Labels"]
        )
        self._at_rest = self._wait_until_calm(_REST_SECONDS)

    def start(self) -> tuple[UUID, float, float]:
        """Create and start one container; returns whose it is, when it was asked for and when it ran (perf_counter)."""
        kernel, body = self._order()
        started_at = time.perf_counter()
        self._client.create_container_from_config(body, _name(kernel))
        self._client.start(_name(kernel))
        return kernel, started_at, time.perf_counter()

    def start_many(self, count: int, threads: int) -> tuple[list[float], float]:
        """Start that many at once; returns the seconds from the beginning to each start and those to the last."""
        with ThreadPoolExecutor(threads) as pool:
            started_at = time.perf_counter()
            done = list(pool.map(lambda _: self.start(), range(count)))
            seconds = [at - started_at for _, _, at in done]
            list(pool.map(self.remove, [kernel for kernel, _, _ in done]))
        return seconds, max(seconds)

    def settle(self) -> None:
        """Wait until the platform has as many containers as before the first start, and nothing came or went for a
        moment: neither side may be measured while the engine still works for the other."""
        self._wait_until_calm(_CALM_SECONDS, wanted=self._at_rest)

    def remove(self, kernel: UUID) -> None:
        """Remove a container that was started here, and its folder."""
        try:
            self._client.remove_container(_name(kernel), force=True, v=True)
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409):  # gone, or going: the engine answered too late for its own retry
                raise
        self._scratch.remove(kernel)

    def _wait_until_calm(self, seconds: float, *, wanted: int | None = None) -> int:
        """Return the number of the platform's containers when it has not changed for so long."""
        started_at = still_since = time.monotonic()
        before: set[str] = set()
        while True:
            now = {found["Id"] for found in self._client.containers(all=True, filters={"label": [self._label]})}
            if now != before or wanted not in (None, len(now)):
                still_since = time.monotonic()
            if time.monotonic() - still_since >= seconds:
                return len(now)
            if time.monotonic() - started_at > _SETTLE_SECONDS:
                raise TimeoutError(f"{len(now)} containers are there, not {wanted} as at rest")
            before = now
            time.sleep(0.1)

    @property
    def _client(self) -> docker.APIClient:
        if not hasattr(self._own, "client"):
            self._own.client = docker.APIClient(version="auto", timeout=120)
        client: docker.APIClient = self._own.client
        return client

    def _order(self) -> tuple[UUID, dict[str, object]]:
        kernel = uuid4()
        folder = self._scratch.prepare(kernel, 0)
        spec = KernelSpec(
            deployment=BARE,
            kernel_id=kernel,
            session_id=uuid4(),
            generation=1,
            agent="bench",
            session_name="bench",
            image=IMAGE,
            slots=Slots.parse(RESOURCES).to_json(),
            shm_bytes=32 * 2**20,
        )
        labels = {f"{PREFIX}deployment": BARE, f"{PREFIX}agent": BARE}
        body = container_body(spec, labels=labels, scratch=folder, network=self._network, cpus=self._cpus)
        return kernel, body


def _name(kernel: UUID) -> str:
    return f"bench-{kernel}"


def ensure_image() -> None:
    """Build the tiny image unless the engine has it."""
    client = docker.APIClient(version="auto")
    try:
        client.inspect_image(IMAGE)
    except ImageNotFound:
        say(f"building {IMAGE} ...")
        subprocess.run([ROOT / "images/tiny/build", IMAGE], check=True, stdout=subprocess.DEVNULL)
