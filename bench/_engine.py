"""The other side of the comparison: the engine alone, asked through its own client for the very same containers."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import docker
from docker.errors import ImageNotFound

from backendai.agent.backends.docker_create import container_body
from backendai.agent.backends.docker_engine import PREFIX
from backendai.core.slots import Slots
from backendai.wire.messages import KernelSpec
from bench._leftovers import BARE
from bench._portal import IMAGE, RESOURCES, ROOT, Portal, say


class BareEngine:
    """Creates and starts containers with the agent's own options on the agent's own network, and nothing else."""

    def __init__(self, portal: Portal, scratch: Path) -> None:
        self._own = threading.local()
        self._scratch = scratch
        self._cpus = int(self._client.info()["NCPU"])
        label = f"{PREFIX}deployment={portal.deployment()}"
        self._network = next(
            found["Name"]
            for found in self._client.networks(filters={"label": [label]})
            if f"{PREFIX}session" not in found["Labels"]
        )

    def start(self) -> tuple[str, float]:
        """Create and start one container; returns its name and when it was running (perf_counter)."""
        name, body = self._order()
        self._client.create_container_from_config(body, name)
        self._client.start(name)
        return name, time.perf_counter()

    def start_many(self, count: int, threads: int) -> tuple[list[float], float]:
        """Start that many at once; returns the seconds from the beginning to each start and those to the last."""
        with ThreadPoolExecutor(threads) as pool:
            begun = time.perf_counter()
            done = list(pool.map(lambda _: self.start(), range(count)))
            seconds = [at - begun for _, at in done]
            list(pool.map(self.remove, [name for name, _ in done]))
        return seconds, max(seconds)

    def remove(self, name: str) -> None:
        """Remove a container that was started here."""
        self._client.remove_container(name, force=True, v=True)

    @property
    def _client(self) -> docker.APIClient:
        if not hasattr(self._own, "client"):
            self._own.client = docker.APIClient(version="auto", timeout=120)
        client: docker.APIClient = self._own.client
        return client

    def _order(self) -> tuple[str, dict[str, object]]:
        kernel = uuid4()
        folder = self._scratch / str(kernel)
        folder.mkdir(parents=True)
        os.chown(folder, 1000, 1000) if os.geteuid() == 0 else folder.chmod(0o777)
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
        body = container_body(spec, labels=labels, scratch=folder, network=self._network, cpus=self._cpus, extra={})
        return f"bench-{kernel}", body


def ensure_image() -> None:
    """Build the tiny image unless the engine has it."""
    client = docker.APIClient(version="auto")
    try:
        client.inspect_image(IMAGE)
    except ImageNotFound:
        say(f"building {IMAGE} ...")
        subprocess.run([ROOT / "images/tiny/build", IMAGE], check=True, stdout=subprocess.DEVNULL)
