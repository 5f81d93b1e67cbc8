"""A whole platform in one thread: the real services, loops and node logic between a fake engine, a fake broker that
drops, doubles and reorders, a fake network and a fake clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from django.db import close_old_connections
from django.utils import timezone

from backendai.agent.backends.abilities import Imaging, Streaming
from backendai.agent.backends.base import BackendError, Ended, KernelGone, StaleGeneration, Started, StartFailed
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import Claim, Move
from backendai.agent.loop.ends import Ends
from backendai.agent.loop.epoch import EpochGuard
from backendai.agent.loop.manifests import Manifests
from backendai.agent.loop.reconcile import Reconciler
from backendai.agent.loop.starts import Starts
from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.slots import Slots
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import STORE
from backendai.base.wire.messages import KernelReport, KernelSighting, KernelSpec, SyncDown, SyncUp, UnknownKernel
from backendai.base.wire.node_jobs import CAPABILITY, JobState, NodeJobReport
from backendai.domain.cluster.capabilities import reported
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import follow_jobs, kind_named, orders_of
from backendai.domain.cluster.services import record_sync
from backendai.domain.compute.auditing import ObservedContainer
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import work_for
from backendai.domain.compute.services.agents.unknown_kernels import note_unknown
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.logs import save_log
from backendai.domain.pipelines.hints import TASK as RUN_TASK
from backendai.portal.loops import loops
from backendai.portal.loops.loops import run_pipelines


class Crashed(BaseException):
    """The node's process dies here; nothing of it catches this."""


@dataclass
class Container:
    generation: int
    running: bool = True
    exit_code: int | None = None


@dataclass
class Faults:
    """What goes wrong next, each once."""

    start: str = ""  # refuse, silent-before, silent-after, crash-before, crash-between, crash-after
    portal: str = ""  # lost-before, lost-after, crash-after


class FakeEngine(Imaging, Streaming):
    """Containers in a dictionary, with the daemon's manners: names are unique, effects may outlive a failed call."""

    name = "fake"

    def __init__(self) -> None:
        self.containers: dict[UUID, Container] = {}
        self.faults = Faults()

    def start(self, spec: KernelSpec) -> Started:
        fault, self.faults.start = self.faults.start, ""
        if fault == "refuse":
            raise StartFailed("The engine refused.")
        if fault == "silent-before":
            raise BackendError("The engine does not answer.")
        if fault == "crash-before":
            raise Crashed
        there = self.containers.get(spec.kernel_id)
        if there and there.generation > spec.generation:
            raise StaleGeneration("A newer one is here.")
        adopted = there is not None and there.generation == spec.generation
        if not adopted:
            self.containers[spec.kernel_id] = Container(spec.generation)
        if fault == "silent-after":
            raise BackendError("The engine did it but its answer is lost.")
        if fault == "crash-between":
            self.containers[spec.kernel_id] = Container(spec.generation, running=False)
            raise Crashed
        if fault == "crash-after":
            raise Crashed
        self.containers[spec.kernel_id].running |= self.containers[spec.kernel_id].exit_code is None
        return Started(f"c{spec.kernel_id.hex[:8]}", adopted)

    def stop(self, kernel_id: UUID, *, grace: float) -> None:
        if (there := self.containers.get(kernel_id)) and there.running:
            there.running, there.exit_code = False, 143

    def ended(self, kernel_id: UUID) -> Ended | None:
        there = self.containers.get(kernel_id)
        if there is None:
            raise KernelGone("It is gone.")
        if there.exit_code is None:
            return None
        return Ended(there.exit_code, "" if there.exit_code == 143 else "exited", "")

    def read_log(self, kernel_id: UUID, *, limit: int) -> tuple[bytes, bool]:
        return b"hello\n", False

    def remove(self, kernel_id: UUID) -> None:
        self.containers.pop(kernel_id, None)

    def kernels(self) -> list[KernelSighting]:
        return [
            KernelSighting(kernel_id=pk, generation=one.generation, running=one.running, exit_code=one.exit_code)
            for pk, one in self.containers.items()
        ]

    def has_image(self, reference: str) -> bool:
        return True

    def capacity(self):
        return Slots()

    def notes(self):
        return []

    def images(self):
        return []

    def pull(self, reference, *, timeout, progress):
        raise AssertionError("no pull is needed here")

    def sweep(self, live):
        pass

    def watch(self):
        return iter(())

    async def open_terminal(self, kernel_id, *, name, rows, cols):
        raise KernelGone("no terminals here")

    def follow_log(self, kernel_id, *, tail, follow):
        raise KernelGone("no logs here")

    def close(self):
        pass


class InProcessPortal:
    """The portal as a node sees it, through a network that may lose the question or the answer."""

    def __init__(self, agent_id: UUID, faults: Faults) -> None:
        self.agent_id, self.faults, self.cut = agent_id, faults, False
        self.reports: list[KernelReport] = []

    def now(self) -> float:
        return timezone.now().timestamp()

    def sync(self, up: SyncUp) -> SyncDown:
        return self._call(lambda agent: (record_sync(agent, up, now=timezone.now()), self._work(agent, up))[1])

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        try:
            return self._call(lambda agent: spec_for(agent, kernel_id))
        except PortalRefused:
            return None

    def report(self, report: KernelReport) -> bool:
        self.reports.append(report)
        return self._call(lambda agent: kernel_reported(agent, report))

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        self._call(lambda agent: save_log(agent, kernel_id, generation, log, truncated=truncated))

    def _work(self, agent: Agent, up: SyncUp) -> SyncDown:
        kept = {(one.kernel_id, one.generation) for one in up.unknown if one.kept}
        answer = work_for(agent, up.kernels, want_images=False, kept=kept)
        note_unknown(agent, answer, up.unknown, now=timezone.now())
        return answer

    def _call(self, action):
        fault, self.faults.portal = self.faults.portal, ""
        if self.cut or fault == "lost-before":
            raise PortalUnreachable("no way to the portal")
        try:
            answer = action(Agent.objects.get(pk=self.agent_id))
        except (Conflict, NotFound) as error:
            raise PortalRefused(error.message, status=404) from error
        finally:
            close_old_connections()
        if fault == "lost-after":
            raise PortalUnreachable("the answer is lost")
        if fault == "crash-after":
            raise Crashed
        return answer


class Node:
    """One node: the agent's real logic, without its threads."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.engine = agent, FakeEngine()
        self.portal = InProcessPortal(agent.pk, self.engine.faults)
        self._folder = TemporaryDirectory()
        self.restart()

    def restart(self) -> None:
        """Start the node's process anew: all memory is gone, the containers are not."""
        data = Path(self._folder.name)
        self.roster, self.reconciler, self.first = KernelIndex(), Reconciler(), True
        self.epoch, self.manifests = EpochGuard(data), Manifests(data / "manifests")
        self.ends = Ends(self.engine, self.portal, self.roster)
        self.starts = Starts(
            self.engine,
            self.portal,
            self.roster,
            self.ends,
            agent=self.agent.name,
            save_manifest=self.manifests.save,
            on_pulled=lambda: None,
        )

    def sync(self) -> None:
        """One round of the sync loop."""
        self._survive(self._sync)

    def hint(self, task: str, kernel_id: UUID, generation: int) -> None:
        """A hint arrives."""
        if task in ("node.start_kernel", "node.start_kernels"):
            self._survive(lambda: self._do("start", kernel_id, generation, self.starts.start))
        else:
            self._survive(lambda: self._do("stop", kernel_id, generation, lambda c: self.ends.stop(5.0, c)))

    def _sync(self) -> None:
        listing = self.engine.kernels()
        self.roster.replace(listing, taken_at=0.0)
        up = SyncUp(
            boot_id="b", version="1", backend="docker", architecture="x86_64", gateway_url="http://127.0.0.1:1",
            capacity=self.agent.capacity, kernels=listing,
            capabilities=[
                *reported(None, "docker"), Capability.HOMES, f"{CAPABILITY}{STORE}"
            ],
            unknown=[
                UnknownKernel(kernel_id=kernel_id, generation=generation, kept=True)
                for kernel_id, generation in self.epoch.kept
            ],
        )  # fmt: skip
        try:
            answer = self.portal.sync(up)
        except PortalUnreachable:
            self.reconciler.forget()
            return
        self.epoch.hear(answer, listing)
        orders = self.reconciler.compare(
            listing, answer, held=set(), eager=self.first, kept=self.epoch.kept, in_touch=not self.first
        )
        self.epoch.keep(orders.doubted)
        self.first = False
        for stop in orders.stop:
            self._do("stop", stop.kernel_id, stop.generation, lambda c, stop=stop: self.ends.stop(stop.grace, c))
        for kernel_id, generation in orders.ended:
            self._do("look", kernel_id, generation, self.ends.look)
        for kernel_id, generation in orders.discard:
            self._do("discard", kernel_id, generation, self.ends.discard)
        for kernel_id, generation in orders.missing:
            self.ends.give_verdict(kernel_id, generation, "container-missing", "It is gone.")
        for kernel_id, generation in orders.start:
            self._do("start", kernel_id, generation, self.starts.start)

    def store_homes(self, state: JobState) -> None:
        """Report on every home that this node is to store, unless the kernel has ended here by itself."""
        for order in orders_of([self.agent.pk]).get(self.agent.pk, []):
            spec = kind_named(STORE).spec(self.agent, order.job_id)
            kernel_id, there = UUID(str(spec.work["kernel_id"])), None
            if not self.portal.cut:
                there = self.engine.containers.get(kernel_id)
            if there and spec.work["grace"]:
                self.engine.stop(kernel_id, grace=spec.work["grace"])
            if there and (there.running or (spec.work["grace"] and there.exit_code == 143)):
                report = NodeJobReport(kind=STORE, job_id=order.job_id, state=state)
                kind_named(STORE).heard(self.agent, report, now=timezone.now())

    def _do(self, action, kernel_id: UUID, generation: int, work) -> None:
        claim = Claim(kernel_id, generation, action)
        move: Move | None = work(claim)
        while move is not None:
            move = move[1](claim)

    def _survive(self, action) -> None:
        try:
            action()
        except Crashed:
            self.restart()


@dataclass
class Platform:
    """Everything but the database."""

    nodes: list[Node]
    now: datetime
    hints: list[tuple[str, tuple, str]] = field(default_factory=list)
    is_door_open: bool = True

    def send(self, task: str, *args, queue: str) -> bool:
        """Stand in for the broker: nothing is delivered until a test says so."""
        self.hints.append((task, args, queue))
        return True

    def deliver(self, index: int, *, keep: bool = False) -> None:
        """Hand one waiting hint to whom it is for; ``keep`` doubles it."""
        if not self.hints:
            return
        index %= len(self.hints)
        task, args, queue = self.hints[index] if keep else self.hints.pop(index)
        if task == "node.begin_job":
            return  # ``store_homes`` reads the orders
        if task == "controller.follow_jobs":
            follow_jobs(self.now)
            return
        if task == RUN_TASK:
            run_pipelines(self.now)
            return
        if queue == "control":
            loops.schedule_group(int(args[0]), self.now)
            return
        for node in self.nodes:
            if queue == f"node.{node.agent.name}":
                for kernel_id, generation in args[0] if task == "node.start_kernels" else [args]:
                    node.hint(task, UUID(kernel_id), int(generation))

    def settle(self, rounds: int = 8) -> None:
        """Let the loops run without faults, hints in any order."""
        self.is_door_open = True
        for node in self.nodes:
            node.portal.cut = False
            node.engine.faults.start = node.engine.faults.portal = ""
        for number in range(rounds):
            self.now += timedelta(seconds=5)
            run_pipelines(self.now)
            loops.run_pass(self.now)
            if number % 2 == 0:  # a pass of a hundred statements: more often it would be most of the test's time
                loops.run_repair(self.now)
            random.shuffle(self.hints)
            while self.hints:
                self.deliver(0)
            for node in self.nodes:
                node.sync()
                node.store_homes(JobState.DONE)

    def containers(self) -> list[ObservedContainer]:
        """Everything that really runs or ran."""
        return [
            ObservedContainer(pk, one.generation, one.running)
            for node in self.nodes
            for pk, one in node.engine.containers.items()
        ]
