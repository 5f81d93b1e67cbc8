"""Starts kernels: fetch the spec, pull the image if it is missing, create or adopt the kernel, report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TypeVar
from uuid import UUID

from backendai.agent.backends.abilities import Imaging
from backendai.agent.backends.base import (
    ENGINE_SILENT,
    Backend,
    BackendError,
    Fetched,
    ImageNotFound,
    Progress,
    StaleGeneration,
    Started,
    StartFailed,
    with_cause,
)
from backendai.agent.counts import count_start, failed_starts
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.kernel_queues import Claim, Move
from backendai.agent.loop.ends import Ends
from backendai.agent.portal.client import Portal, PortalRefused, PortalUnreachable
from backendai.base.core.errors import PlatformError
from backendai.base.core.messages import Message
from backendai.base.wire.messages import KernelReport, KernelSpec, KernelState, ReadyCheck

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 1.0
_SWEEP_SECONDS = 10.0
_LOOK_SECONDS = 0.5
Timings = dict[str, float]
T = TypeVar("T")


class _Abandoned(Exception):
    """Stops a pull whose kernel was cancelled meanwhile. The agent does not report it."""


class Starts:
    """The actions that start a kernel.

    ``on_unanswered`` is called when a start failed because the portal did not answer. ``draining`` set: nothing new
    starts. ``listens``: whether a program in a kernel listens on a port. ``unswept`` clear: a sweep is looking for
    leftovers, so starts wait before they create anything.
    """

    def __init__(
        self,
        backend: Backend,
        portal: Portal,
        roster: KernelIndex,
        ends: Ends,
        *,
        agent: str,
        save_manifest: Callable[[UUID, int, str], None],
        on_pulled: Callable[[], None],
    ) -> None:
        self._backend, self._portal, self._roster, self._ends = backend, portal, roster, ends
        self._agent, self._save_manifest, self._on_pulled = agent, save_manifest, on_pulled
        self.draining = Event()
        self.unswept = Event()
        self.unswept.set()
        self.on_unanswered: Callable[[], None] = lambda: None
        self.listens: Callable[[UUID, int], bool] = lambda kernel_id, port: True

    def start(self, claim: Claim) -> Move | None:
        """Start a kernel; with its image here, this needs one spec fetch and one report. The engine refuses to create a
        kernel whose image is missing: a check before every start would cost a request.

        The spec is fetched while the claim is held: the spec of a sync may be older than the kernel's end, and a batch
        program must not run twice.
        """
        timings = {"queue": time.monotonic() - claim.queued_at}
        spec = _timed(timings, "fetch", lambda: self._fetch(claim.kernel_id))
        if spec is None or spec.agent != self._agent or self._given_up(claim):
            return None
        claim.generation = spec.generation
        return self._create(spec, timings, claim)

    def _fetch(self, kernel_id: UUID) -> KernelSpec | None:
        try:
            return self._portal.fetch_spec(kernel_id)
        except PlatformError as error:
            logger.warning("kernel %s: %s", kernel_id, error.message)
            self.on_unanswered()
            return None

    def _given_up(self, claim: Claim) -> bool:
        return self.draining.is_set() or claim.abandon.is_set()

    def _pull(self, spec: KernelSpec, timings: Timings, claim: Claim) -> Move | None:
        # Pulls have their own lane: a slow registry must not delay kernels whose images are here.
        if self._given_up(claim) or not self._tell(
            spec, KernelState.PULLING, Message("Pulling {image}.", image=spec.image)
        ):
            return None
        started_at = time.monotonic()
        try:
            self._ensure_image(spec, claim)
        except _Abandoned:
            return None
        except (PortalRefused, PortalUnreachable) as error:
            logger.warning("kernel %s: no account for the registry: %s", claim.kernel_id, error.message)
            return None
        except ImageNotFound as error:
            return self._fail(spec, error.code, error.message)
        except BackendError as error:
            if error.code not in ENGINE_SILENT:
                return self._fail(spec, error.code, error.message)
            logger.warning("kernel %s: pull of %s: %s", claim.kernel_id, spec.image, error.message)
            return None
        timings["pull"] = time.monotonic() - started_at
        self._on_pulled()
        if self._given_up(claim):
            return None
        self._tell(spec, KernelState.CREATING, "")
        return "start", partial(self._create, spec, timings)

    def _ensure_image(self, spec: KernelSpec, claim: Claim) -> None:
        backend = self._backend
        if not isinstance(backend, Imaging):
            raise ImageNotFound("{image} cannot be used here: this agent has no images.", image=spec.image)
        if backend.has_image(spec.exact_image):  # another start may have pulled it meanwhile
            return
        access = self._portal.registry_access(spec.kernel_id)
        progress = self._progress(spec, claim)
        claim.is_pulling = True
        try:
            backend.pull(spec.exact_image, timeout=spec.pull_timeout, progress=progress, access=access)
        finally:
            claim.is_pulling = False

    def _progress(self, spec: KernelSpec, claim: Claim) -> Progress:
        told_at, told = time.monotonic(), None

        def progress(fetched: Fetched) -> None:
            nonlocal told_at, told
            if self._given_up(claim):
                raise _Abandoned
            if fetched != told and time.monotonic() - told_at >= _PROGRESS_SECONDS:
                told_at, told = time.monotonic(), fetched
                if not self._tell(spec, KernelState.PULLING, fetched.message, fetched):
                    raise _Abandoned

        return progress

    def _create(self, spec: KernelSpec, timings: Timings, claim: Claim) -> Move | None:
        if self._given_up(claim):
            return None
        self.unswept.wait(_SWEEP_SECONDS)
        if spec.manifest:
            self._save_manifest(spec.kernel_id, spec.generation, spec.manifest)
        claim.allowed, claim.deadline = spec.create_timeout, time.monotonic() + spec.create_timeout
        try:
            started = _timed(timings, "start", lambda: self._backend.start(spec))
        except StaleGeneration:
            return None
        except ImageNotFound as error:
            if "pull" in timings:
                return self._fail(spec, error.code, error.message)
            return "pull", partial(self._pull, spec, timings)
        except StartFailed as error:
            return self._fail(spec, error.code, error.message)
        except BackendError as error:
            # Not reported as failed, even if late: the kernel may have started, and the next try adopts it.
            logger.warning("kernel %s: %s", claim.kernel_id, error.message)
            return None
        finally:
            claim.deadline = None
        self._roster.note(spec.kernel_id, spec.generation)
        if spec.ready is not None:
            return "ready", partial(self._await_ready, spec, spec.ready, started, timings)
        return self._report_running(spec, started, timings)

    def _await_ready(
        self, spec: KernelSpec, check: ReadyCheck, started: Started, timings: Timings, claim: Claim
    ) -> Move | None:
        """Wait until a program in the kernel listens. Uses its own lane, so that slow programs do not delay other
        starts. If the agent stops meanwhile, its next start continues with this kernel."""
        text = Message("Waiting until a program in it listens on port {port}.", port=check.tcp)
        self._tell(spec, KernelState.CREATING, text)
        began_at = time.monotonic()
        while not self.listens(spec.kernel_id, check.tcp):
            if self._given_up(claim):
                return None
            if time.monotonic() - began_at > check.within:
                seconds = f"{check.within:.0f}"
                text = Message(
                    "No program listened on port {port} within {seconds} s.", port=check.tcp, seconds=seconds
                )
                return "end", partial(self._ends.stop_because, "not-ready", with_cause(text))
            if self._has_ended(spec.kernel_id):
                return "end", self._ends.look
            claim.abandon.wait(_LOOK_SECONDS)
        timings["ready"] = time.monotonic() - began_at
        return self._report_running(spec, started, timings)

    def _has_ended(self, kernel_id: UUID) -> bool:
        try:
            return self._backend.ended(kernel_id) is not None
        except BackendError:
            return False

    def _report_running(self, spec: KernelSpec, started: Started, timings: Timings) -> Move | None:
        report = KernelReport(
            kernel_id=spec.kernel_id,
            generation=spec.generation,
            state=KernelState.RUNNING,
            container_id=started.container_id,
            message=self._backend.left_out(spec.kernel_id),
            timings={name: round(seconds, 4) for name, seconds in timings.items()},
        )
        try:
            if self._portal.report(report):
                count_start(timings)  # a start that is repeated, as a hint and a loop may do it, counts once
                return None
            wanted = self._portal.fetch_spec(spec.kernel_id)
        except PlatformError as error:
            logger.warning("kernel %s runs but is not reported: %s", spec.kernel_id, error.message)
            self.on_unanswered()
            return None
        # A report without effect may be a repetition: fetch the spec before removing a running kernel.
        if wanted is not None and wanted.generation == spec.generation:
            return None
        return "end", self._ends.discard

    def _fail(self, spec: KernelSpec, reason: str, message: str) -> Move | None:
        failed_starts.inc()
        self._ends.give_verdict(spec.kernel_id, spec.generation, reason, message)
        return None

    def _tell(self, spec: KernelSpec, state: KernelState, message: str, fetched: Fetched | None = None) -> bool:
        """Report an intermediate state; returns False if the portal does not know this kernel."""
        report = KernelReport(
            kernel_id=spec.kernel_id,
            generation=spec.generation,
            state=state,
            message=message,
            progress=fetched.share if fetched else None,
            fetched_bytes=fetched.done_bytes if fetched else None,
            image_bytes=fetched.total_bytes if fetched else None,
        )
        try:
            self._portal.report(report)
        except PortalRefused as error:
            return error.status != 404
        except PlatformError as error:
            logger.info("kernel %s: step %s not reported: %s", spec.kernel_id, state, error.message)
        return True


def _timed(timings: Timings, name: str, call: Callable[[], T]) -> T:
    started_at = time.monotonic()
    try:
        return call()
    finally:
        timings[name] = time.monotonic() - started_at
