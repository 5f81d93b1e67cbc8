"""The SSH gate in front of a real gateway and native kernels, and OpenSSH's own clients."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import uvloop
from aiohttp import web
from django.conf import settings

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.kernel_index import KernelIndex
from backendai.base.wire.tickets import public_key_of
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.environments import add_ssh_key
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.gates.sshgate.server import serving
from tests.agent.specs import make_spec
from tests.patience import patient

_OPTIONS = {
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "IdentitiesOnly": "yes",
    "LogLevel": "ERROR",
    "ConnectTimeout": "20",
}


class Stage:
    """``folder`` holds keys by the names of people; the gate listens on ``port``."""

    def __init__(self, folder: Path, backend: NativeBackend | DockerBackend, roster: KernelIndex) -> None:
        self.folder, self.backend, self._roster = folder, backend, roster
        self.port = self.gateway_port = 0
        self.loop: asyncio.AbstractEventLoop

    def new_key(self, name: str, user: User | None = None) -> Path:
        """Make a key, registered for this person."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
        if user is not None:
            add_ssh_key(user, Path(f"{path}.pub").read_text())
        return path

    def run_kernels(self, session: ComputeSession, **more: Any) -> None:
        """Start the session's kernels, as native processes unless ``more`` of their specs says otherwise."""
        for kernel in session.kernels.all():
            usual = {"slots": {"cpu": "1", "mem": str(2**30)}, "image": IMAGE, "hostname": kernel.hostname}
            known = {"kernel_id": kernel.pk, "generation": kernel.generation, "session_id": session.pk}
            self.backend.start(make_spec(**known, **(usual | more)))
            self._roster.note(kernel.pk, kernel.generation)
        Agent.objects.update(gateway_url=f"http://127.0.0.1:{self.gateway_port}")

    def options(self, key: Path, **more: str) -> list[str]:
        told = _OPTIONS | {"IdentityFile": str(key)} | more
        return [word for name, value in told.items() for word in ("-o", f"{name}={value}")]

    def ssh(self, key: Path, name: str, *words: str, **more: str) -> list[str]:
        """Return the command line of a client."""
        return ["ssh", *self.options(key, **more), "-p", str(self.port), f"{name}@127.0.0.1", *words]

    def run(
        self, key: Path, name: str, *words: str, given: bytes = b"", timeout: float = 30, **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a client to its end."""
        return subprocess.run(
            self.ssh(key, name, *words, **more), input=given, capture_output=True, timeout=timeout, check=False
        )

    def left(self) -> tuple[int, int]:
        """Return how many tasks the loop of gate and gateway has, and this process descriptors."""

        async def count() -> int:
            return len(asyncio.all_tasks())

        tasks = asyncio.run_coroutine_threadsafe(count(), self.loop).result(10)
        return tasks, len(os.listdir("/proc/self/fd"))

    def copy(self, program: str, key: Path, *words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
        """Run ``scp`` or ``sftp``."""
        command = [program, *self.options(key, **more), "-P", str(self.port), *words]
        return subprocess.run(command, capture_output=True, timeout=60, check=False)


@contextmanager
def stage(backend: DockerBackend | None = None) -> Iterator[Stage]:
    """Put everything up, with native kernels unless another backend is given; they are started by the test."""
    folder = Path(tempfile.mkdtemp(prefix="ssh-stage-", dir="/tmp"))
    folder.chmod(0o755)
    roster, native = KernelIndex(), None
    if backend is None:
        native = NativeBackend(folder / "agent", deployment="test", agent="n1")
    here = Stage(folder, backend or native, roster)
    ready, stops = threading.Event(), []
    key = public_key_of(settings.TICKET_KEY)

    async def serve() -> None:
        view = GatewayView(here.backend, roster, lambda: key, time.time, dict)
        gateway = Gateway(view)
        runner = web.AppRunner(gateway.application(), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        here.gateway_port = site._server.sockets[0].getsockname()[1]
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        here.port = listener.getsockname()[1]
        stop = asyncio.Event()
        here.loop = asyncio.get_running_loop()
        stops.append(stop)
        async with serving(listener):
            ready.set()
            await stop.wait()
        listener.close()
        await gateway.close_websockets()
        await runner.cleanup()

    thread = threading.Thread(target=uvloop.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(patient(10))
    try:
        yield here
    finally:
        here.loop.call_soon_threadsafe(stops[0].set)
        thread.join(patient(10))
        if native is not None:
            native.close()
        shutil.rmtree(folder, ignore_errors=True)


def connect(here: Stage, key: Path, name: str = "train", **more: Any) -> Any:
    """Return a connection of a client that speaks the protocol as the test says."""
    return asyncssh.connect(
        "127.0.0.1", here.port, username=name, client_keys=[str(key)], known_hosts=None, config=None,
        agent_path=None, **more,
    )  # fmt: skip


def lines(output: bytes) -> Sequence[str]:
    return output.decode().splitlines()
