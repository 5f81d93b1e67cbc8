"""Services of native kernels: programs of a Python environment, reached only through the guest.

They listen on a unix socket in the kernel's own temporary folder, so that no other user of the machine can reach them.
Kernels that serve endpoints have a loopback address each, in their variable HOST. Every user of the machine can reach
these, so an administrator has to allow it.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import SH, BackendError
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.launch import ENVIRONMENT
from backendai.agent.backends.native.sandbox import open_to_all
from backendai.agent.backends.native.terminal import ask_exit_code, request_program
from backendai.agent.backends.service_host import ANY_HOST, ServiceHost, ServiceSource, address_of
from backendai.agent.backends.shared.services import LAUNCH, MARK
from backendai.base.core.service_ports import LABEL, NATIVE_SERVICES, is_service_name
from backendai.base.wire.messages import KernelSpec

_COMPLETE = ".complete"
# Sockets of interpreters need a short path.
_BEFORE = 'export JUPYTER_RUNTIME_DIR="$BACKENDAI_APP_FOLDER/.jupyter" && '


def address_in(spec: KernelSpec) -> str:
    """Return the kernel's address from ``with_address``; empty if it has none."""
    address = address_of(spec.kernel_id)
    return address if spec.environ.get("HOST") == address else ""


def with_address(spec: KernelSpec) -> KernelSpec:
    """Return the spec with the kernel's own address, if its server would listen on all addresses."""
    if spec.environ.get("HOST") != ANY_HOST:
        return spec
    return spec.model_copy(update={"environ": {**spec.environ, "HOST": address_of(spec.kernel_id)}})


class NativeServices(ServiceHost):
    """``running`` returns the folder of a running kernel, or raises KernelGone. ``environments``: the folder of built
    environments."""

    def __init__(self, running: Callable[[UUID], KernelFolder], environments: Path | None) -> None:
        self._running_folder, self._environments = running, environments

    def address(self, kernel_id: UUID) -> str:
        """Return "", as the network is the machine's; for replicas, their address. Raises KernelGone."""
        spec = self._running(kernel_id).spec()
        return address_in(spec) if spec is not None else ""

    def socket(self, kernel_id: UUID, service: str) -> str:
        """Return the path of a socket in the kernel's temporary folder."""
        return f"{_temporary(self._running(kernel_id))}/.app-{service}.sock"

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return the environment's definition of the service, or the reason why the kernel has no environment yet."""
        launch = self._running(kernel_id).read("launch")
        if not is_service_name(service) or service not in _names():
            return ServiceSource(None, {})
        if self._environments is None:
            return ServiceSource(None, {}, fault="This agent is set to have no Python environment for its sessions.")
        made = self._environments / ENVIRONMENT
        if not (made / _COMPLETE).exists():
            return self._not_made()
        environment = str(launch.get("environment") or "")
        if not environment:
            text = (
                "This session cannot reach the Python environment. Start a new session; if that does not help, an "
                "administrator has to install bubblewrap, or make the environment in a folder that all users can enter "
                "(BACKENDAI_AGENT_ENVIRONMENTS)."
            )
            return ServiceSource(None, {}, fault=text)
        python = (made / "bin" / "python").resolve()
        if launch["uid"] is not None and environment == str(made) and not open_to_all(python):
            text = f"Without bubblewrap sessions cannot reach {python}: an administrator has to install bubblewrap."
            return ServiceSource(None, {}, fault=text)
        labels = {LABEL: NATIVE_SERVICES, "ai.backend.runtime-path": f"{environment}/bin/python"}
        try:
            return ServiceSource((made / "service-defs" / f"{service}.json").read_bytes(), labels)
        except FileNotFoundError:
            return ServiceSource(None, labels)

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the program by the kernel's first process; returns kernel and pid."""
        folder = self._running(kernel_id)
        told = {**environ, MARK: service, "BACKENDAI_APP_FOLDER": _temporary(folder)}
        pid = request_program(folder.path, [SH, "-c", _BEFORE + LAUNCH, service, *command], told)
        return f"{kernel_id}:{pid}"

    def exit_code(self, handle: str) -> int | None:
        """Return the exit code from the kernel's first process; None while the program runs."""
        kernel_id, _, pid = handle.partition(":")
        return ask_exit_code(self._running(UUID(kernel_id)).path, int(pid)) if int(pid) else None

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the end of the file with the program's output. Reads only a regular file and no link, as the user can
        write there."""
        folder = self._running(kernel_id)
        where = Path(folder.read("launch").get("runtime") or folder.path / "tmp")
        try:
            file = os.open(where / f".app-{service}.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        with os.fdopen(file, "rb") as stream:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return b""
            stream.seek(max(0, found.st_size - limit))
            return stream.read(limit)

    def _not_made(self) -> ServiceSource:
        """Return the progress of the environment's build, or the reason of its failure."""
        assert self._environments is not None
        try:
            told: Any = json.loads((self._environments / f"{ENVIRONMENT}.json").read_bytes())
            if told.get("state") == "building":
                percent, seconds = int(told["percent"]), max(time.time() - float(told["began_at"]), 0.0)
                text = f"The Python environment with Jupyter is being installed: {percent} % after {seconds:.0f} s."
                return ServiceSource(None, {}, waiting=text, percent=percent)
            fault = str(told["message"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            fault = "This agent has no Python environment with Jupyter. bin/build-native makes one."
        return ServiceSource(None, {}, fault=fault)

    def _running(self, kernel_id: UUID) -> KernelFolder:
        folder = self._running_folder(kernel_id)
        if not folder.read("launch"):
            raise BackendError("The kernel is being started.")
        return folder


def _temporary(folder: KernelFolder) -> str:
    """Return the kernel's temporary folder, as the kernel sees it."""
    return str(folder.read("launch")["environ"]["TMPDIR"])


def _names() -> set[str]:
    return {entry.partition(":")[0] for entry in NATIVE_SERVICES.split(",")}
