"""Kernels that exist only in memory, for load tests, demonstrations and benchmarks with thousands of them.

Only time passes: a start takes ``start_seconds``, a batch kernel as long as its command sleeps (else
``batch_seconds``), and a line is logged every ``line_seconds``, all multiplied by ``time_scale`` (0: instantly).
Nothing runs between calls: the state is computed from the clock. Every image exists, except those with
``no-such-image`` in their name.
"""

from __future__ import annotations

import asyncio
import platform
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.abilities import Committing, HomeStoring, Imaging, Measuring, Mounting, Streaming
from backendai.agent.backends.base import (
    NOBODY,
    BackendError,
    Ended,
    Fetched,
    ImageNotFound,
    KernelEvent,
    KernelGone,
    KernelReading,
    Progress,
    SavedImage,
    StaleGeneration,
    Started,
    StartFailed,
    Terminal,
)
from backendai.agent.backends.service_host import ServiceHost, ServiceSource, address_of
from backendai.agent.backends.simulated.guests import SimulatedGuests
from backendai.agent.backends.simulated.kernel import SimulatedDurations as SimulatedDurations
from backendai.agent.backends.simulated.kernel import (
    SimulatedJournal,
    SimulatedKernel,
    duration_of,
    ending_of,
    load_of,
    serving_port,
)
from backendai.agent.backends.simulated.terminal import EchoTerminal
from backendai.agent.backends.simulated.usage import reading_of
from backendai.agent.mounts.hosts import MountRules
from backendai.base.core.slots import Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import StoredHome, StoreResult, StoreWork
from backendai.base.wire.images import CommitSpec, RegistryAccess
from backendai.base.wire.messages import ImageSighting, KernelSighting, KernelSpec, Note
from backendai.base.wire.mounts import HostReport

_LONGEST_SLEEP, _LARGEST = 600.0, 16 * 2**20


class SimulatedPorts(ServiceHost):
    """``port_of`` returns the port of a running kernel, 0 without one; raises KernelGone. A server starts when the
    address of its kernel is first requested."""

    def __init__(self, port_of: Callable[[UUID], int]) -> None:
        self._port_of = port_of
        self._servers: dict[UUID, ThreadingHTTPServer] = {}
        self._lock = threading.Lock()

    def address(self, kernel_id: UUID) -> str:
        port = self._port_of(kernel_id)
        if not port:
            raise BackendError("Simulated sessions have no ports.", code="apps-impossible")
        address = address_of(kernel_id)
        with self._lock:
            if kernel_id not in self._servers:
                self._servers[kernel_id] = _serve(address, port)
        return address

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        return ServiceSource(None, {})

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        raise KernelGone("A simulated session starts no apps.")

    def exit_code(self, handle: str) -> int | None:
        return None

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        return b""

    def close(self, kernel_id: UUID) -> None:
        """Stop the server of an ended kernel."""
        with self._lock:
            server = self._servers.pop(kernel_id, None)
        if server is not None:
            server.shutdown()
            server.server_close()

    def close_all(self) -> None:
        """Stop every server."""
        for kernel_id in list(self._servers):
            self.close(kernel_id)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0

    def _answer(self) -> None:
        length = self.headers.get("Content-Length", "0")
        body = self.rfile.read(min(int(length), _LARGEST)) if length.isdecimal() else b""
        with suppress(ValueError):
            time.sleep(min(max(float(self.headers.get("X-Sleep", "0")), 0.0), _LONGEST_SLEEP))
        said = b"" if self.path == "/health" else body or f"{self.command} {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing, as a probe arrives every few seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 128


def _serve(address: str, port: int) -> ThreadingHTTPServer:
    try:
        server = _Server((address, port), _Answers)
    except OSError as error:
        raise BackendError(
            "Port {port} of {address} cannot be used: {error}", port=port, address=address, error=str(error)
        ) from error
    threading.Thread(target=server.serve_forever, name="simulated-port", daemon=True).start()
    return server


IMAGE = "simulated/python"
_MISSING = "no-such-image"
_LABELS = {"ai.backend.kernelspec": "1", "ai.backend.features": "batch query tty", "ai.backend.role": "COMPUTE"}
MADE_BYTES = 512 * 2**20
_LOOK_INTERVAL, _LONGEST_WAIT = 0.1, 1.0


class SimulatedBackend(Imaging, Committing, Streaming, Measuring, Mounting, HomeStoring):
    """A simulated agent of any size. With a ``journal`` its kernels outlive the agent. ``clock``: seconds since the
    epoch. ``hosts``: storage hosts that it seems to reach; it opens no folder."""

    name = "simulated"
    starts_at_once = 64  # a simulated start only waits
    capabilities = frozenset(
        map(Capability, ("simulated", "images", "cluster-network", "devices", "serving", "execution"))
    )

    def __init__(
        self,
        *,
        deployment: str,
        capacity: Slots,
        pace: SimulatedDurations | None = None,
        images: Sequence[str] = (IMAGE,),
        journal: Path | None = None,
        hosts: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deployment, self._capacity, self._images = deployment, capacity, list(images)
        self._pace, self._clock = pace or SimulatedDurations(), clock
        self._journal = SimulatedJournal(journal)
        self._kernels = {key: one for key, one in self._journal.load().items() if one.deployment == deployment}
        self._frozen: set[UUID] = set()
        self._hosts = list(hosts)
        self._terminals: dict[UUID, set[EchoTerminal]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.services = self._ports = SimulatedPorts(self._port_of)
        self.guests = self._guests = SimulatedGuests(self._check_runs)

    def capacity(self) -> Slots:
        return self._capacity

    def notes(self) -> list[Note]:
        message = "This agent is simulated: its kernels run nothing."
        return [Note(code="simulated-node", message=message, fix="Start the agent with --backend docker.")]

    def images(self) -> list[ImageSighting]:
        machine = platform.machine()
        return [
            ImageSighting(reference=name, digest=name, architecture=machine, labels=_LABELS) for name in self._images
        ]

    def has_image(self, reference: str) -> bool:
        return _MISSING not in reference

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        if not self.has_image(reference):
            raise ImageNotFound("{image} does not exist.", image=reference)
        time.sleep(min(self.pull_seconds, timeout))
        progress(Fetched(1.0, "Pretended to fetch it."))
        if reference not in self._images:
            self._images.append(reference)

    def commit(self, spec: CommitSpec) -> SavedImage:
        """Simulate a saved image: add an entry to the list of images."""
        with self._changed:
            kernel = self._here(spec.kernel_id)
            if kernel.generation != spec.generation or not kernel.running(self._clock()):
                raise KernelGone("The session ended before an image was made of it.")
            if spec.reference not in self._images:
                self._images.append(spec.reference)
        return SavedImage(size_bytes=MADE_BYTES)

    def push_image(self, spec: CommitSpec, *, progress: Progress) -> str:
        return ""

    def drop_image(self, reference: str) -> bool:
        with self._changed:
            if reference in self._images:
                self._images.remove(reference)
        return True

    def home_folder(self, kernel_id: UUID) -> Path | None:
        return None

    def mount_rules(self) -> MountRules:
        return MountRules()

    def storage_hosts(self) -> list[HostReport]:
        return [HostReport(name=name) for name in self._hosts]

    def watch_storage(self, on_change: Callable[[], None]) -> None:
        """Do nothing: what it seems to reach does not change."""

    def cut_folder(self, kernel_id: UUID, folder_id: UUID) -> int:
        self._live(kernel_id)
        return 0

    def freeze(self, kernel_id: UUID) -> None:
        """Note that the kernel is frozen; its log grows on."""
        with self._changed:
            self._live(kernel_id)
            self._frozen.add(kernel_id)

    def thaw(self, kernel_id: UUID) -> None:
        with self._changed:
            self._frozen.discard(kernel_id)

    def store_home(self, work: StoreWork, progress: Progress) -> StoreResult:
        """Simulate an archive: nothing is written."""
        return StoreResult()

    def drop_part(self, home: StoredHome) -> None:
        """Do nothing, as a simulation writes no archives."""

    @property
    def pull_seconds(self) -> float:
        """The real seconds of a simulated pull."""
        return self._pace.pull_seconds * self._pace.time_scale

    def begin(self, spec: KernelSpec) -> tuple[SimulatedKernel, bool]:
        """Start or adopt the kernel without waiting for its main process; returns it and whether it existed. Raises
        like ``start``."""
        if not self.has_image(spec.image):
            raise ImageNotFound("{image} does not exist.", image=spec.image)
        with self._changed:
            known = self._kernels.get(spec.kernel_id)
            if known and known.generation > spec.generation:
                raise StaleGeneration.of(known.generation, spec.generation)
            if known and known.generation == spec.generation:
                return known, True
            return self._make(spec), False

    def find(self, kernel_id: UUID) -> SimulatedKernel | None:
        """Return the kernel, even before its main process runs; None if there is none."""
        with self._changed:
            return self._kernels.get(kernel_id)

    def start(self, spec: KernelSpec) -> Started:
        kernel, adopted = self.begin(spec)
        time.sleep(max(kernel.begins_at - self._clock(), 0.0))
        with self._changed:
            now = self._kernels.get(spec.kernel_id)
        if now is None or now.generation != spec.generation:
            raise StartFailed("The kernel was removed during its start.")
        return Started(kernel.container_id(), adopted=adopted)

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        with self._changed:
            self._frozen.discard(kernel_id)
            if kernel := self._kernels.get(kernel_id):
                self._enter(kernel.stop(self._clock()))
        self._ports.close(kernel_id)
        self._hang_up(kernel_id)

    def ended(self, kernel_id: UUID) -> Ended | None:
        with self._changed:
            return self._here(kernel_id).ended(self._clock())

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        with suppress(KernelGone), self._changed:
            log = self._here(kernel_id).log(self._clock())
            return log[max(len(log) - limit, 0) :], len(log) > limit
        return b"", False

    def remove(self, kernel_id: UUID) -> None:
        with self._changed:
            self._frozen.discard(kernel_id)
            if self._kernels.pop(kernel_id, None):
                self._journal.forget(kernel_id)
                self._changed.notify_all()
        self._ports.close(kernel_id)
        self._hang_up(kernel_id)
        self._guests.remove(kernel_id)

    def kernels(self) -> list[KernelSighting]:
        with self._changed:
            now = self._clock()
            seen = [kernel.sighting(now) for kernel in self._kernels.values() if kernel.began(now)]
            return [one.model_copy(update={"frozen": True}) if one.kernel_id in self._frozen else one for one in seen]

    def readings(self, kernels: Sequence[KernelSighting]) -> dict[UUID, KernelReading]:
        with self._changed:
            now = self._clock()
            here = (self._kernels.get(kernel.kernel_id) for kernel in kernels)
            return {UUID(one.kernel_id): reading_of(one, now) for one in here if one and one.running(now)}

    def sweep(self, live: set[UUID]) -> None:
        """Do nothing, as a simulation has no leftovers."""

    def watch(self) -> Iterator[KernelEvent]:
        with self._changed:
            told = self._ended_now()
        while True:
            with self._changed:
                while not (ended := self._ended_now()) - told and not self._closed:
                    self._changed.wait(self._until_next_end())
                if self._closed:
                    return
            yield from (KernelEvent(kernel_id) for kernel_id in ended - told)
            told = ended

    async def open_terminal(self, kernel_id: UUID, *, name: str, rows: int, cols: int) -> Terminal:
        with self._changed:
            kernel = self._live(kernel_id)
            terminal = EchoTerminal(kernel.hostname, rows, cols)
            self._terminals.setdefault(kernel_id, set()).add(terminal)
        return terminal

    async def follow_log(self, kernel_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        with self._changed:
            kernel = self._here(kernel_id)
        said = -1 if tail is None else kernel.lines(self._clock()) - tail
        while True:
            with self._changed:
                kernel = self._kernels.get(kernel_id, kernel.stop(self._clock()))
            now = self._clock()
            if piece := kernel.log(now, after=said):
                yield piece
            said = max(said, kernel.lines(now))
            if not follow or not kernel.running(now):
                return
            await asyncio.sleep(_LOOK_INTERVAL)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._ports.close_all()
        for kernel_id in list(self._terminals):
            self._hang_up(kernel_id)
        self._guests.close()

    def _make(self, spec: KernelSpec) -> SimulatedKernel:
        scale = self._pace.time_scale
        lasts = duration_of(spec, self._pace.batch_seconds)
        return self._enter(
            SimulatedKernel(
                kernel_id=str(spec.kernel_id),
                deployment=self._deployment,
                generation=spec.generation,
                title=f"Session {spec.session_name} on {spec.hostname}: {spec.image} is ready",
                hostname=spec.hostname,
                begins_at=self._clock() + self._pace.start_seconds * scale,
                lasts=None if lasts is None else lasts * scale,
                line_every=self._pace.line_seconds * scale,
                **ending_of(spec),
                slots=spec.slots,
                devices=spec.devices,
                serves_port=serving_port(spec),
                load=load_of(spec),
            )
        )

    def _enter(self, kernel: SimulatedKernel) -> SimulatedKernel:
        self._kernels[UUID(kernel.kernel_id)] = kernel
        self._journal.keep(kernel)
        self._changed.notify_all()
        return kernel

    def _here(self, kernel_id: UUID) -> SimulatedKernel:
        kernel = self._kernels.get(kernel_id)
        if kernel is None or not kernel.began(self._clock()):
            raise KernelGone("Kernel {kernel_id} not found on this agent.", kernel_id=kernel_id)
        return kernel

    def _check_runs(self, kernel_id: UUID) -> None:
        with self._changed:
            self._live(kernel_id)

    def _port_of(self, kernel_id: UUID) -> int:
        with self._changed:
            return self._live(kernel_id).serves_port

    def _live(self, kernel_id: UUID) -> SimulatedKernel:
        kernel = self._here(kernel_id)
        if not kernel.running(self._clock()):
            raise KernelGone("Kernel {kernel_id} no longer runs.", kernel_id=kernel_id)
        return kernel

    def _ended_now(self) -> set[UUID]:
        now = self._clock()
        return {kernel_id for kernel_id, kernel in self._kernels.items() if now >= kernel.ends_at()}

    def _until_next_end(self) -> float:
        now = self._clock()
        coming = [kernel.ends_at() - now for kernel in self._kernels.values() if kernel.ends_at() > now]
        return min([*coming, _LONGEST_WAIT])

    def _hang_up(self, kernel_id: UUID) -> None:
        for terminal in self._terminals.pop(kernel_id, set()):
            terminal.hang_up()
