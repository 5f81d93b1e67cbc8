"""Ends kernels: the log is uploaded, then the end is reported, and only then the kernel is removed."""

from __future__ import annotations

import logging
from uuid import UUID

from backendai.agent.backends.base import Backend, BackendError, Ended, KernelGone
from backendai.agent.kernel_index import UNKNOWN, KernelIndex
from backendai.agent.kernel_queues import Claim, Move
from backendai.agent.portal.client import Portal, PortalRefused
from backendai.base.core.errors import PlatformError
from backendai.base.wire.messages import KernelReport, KernelState

logger = logging.getLogger(__name__)

LOG_LIMIT = 4 * 2**20
DEFAULT_GRACE = 5.0


class Ends:
    """The actions that end a kernel. If the engine or the portal does not answer, the action returns without a report:
    the kernel stays as it is, and the next sync repeats the order."""

    def __init__(self, backend: Backend, portal: Portal, roster: KernelIndex) -> None:
        self._backend, self._portal, self._roster = backend, portal, roster

    def stop(self, grace: float, claim: Claim) -> Move | None:
        """Stop, report and remove the kernel, unless a newer generation of it runs here. Without grace it is killed,
        and removed even if its log cannot be uploaded."""
        if self._is_newer(claim):
            return None
        try:
            self._backend.stop(claim.kernel_id, grace=grace)
            # A container that was created but never started is stopped without having ended.
            ended = self._backend.ended(claim.kernel_id) or Ended(None, "", "")
        except KernelGone:
            ended = Ended(None, "", "")
        except BackendError as error:
            logger.warning("kernel %s cannot be stopped now: %s", claim.kernel_id, error.message)
            return None
        self._finish(claim, ended, forced=grace <= 0)
        return None

    def stop_because(self, reason: str, message: str, claim: Claim) -> Move | None:
        """Stop a kernel that exceeded a limit which only the agent can measure, and report this reason."""
        try:
            self._backend.stop(claim.kernel_id, grace=DEFAULT_GRACE)
            ended = self._backend.ended(claim.kernel_id)
        except BackendError as error:
            logger.warning("kernel %s (%s) cannot be stopped now: %s", claim.kernel_id, reason, error.message)
            return None
        if ended is not None:
            self._finish(claim, Ended(ended.exit_code, reason, message))
        return None

    def look(self, claim: Claim) -> Move | None:
        """Report and remove the kernel if it has ended. Its generation is read here, as the kernel may just have
        started."""
        claim.generation = self._roster.generation(claim.kernel_id, default=claim.generation)
        if claim.generation == UNKNOWN:
            return None
        try:
            ended = self._backend.ended(claim.kernel_id)
        except BackendError:  # includes KernelGone, which the sync loop reports after two listings
            return None
        if ended is not None:
            self._finish(claim, ended)
        return None

    def discard(self, claim: Claim) -> Move | None:
        """Stop and remove an unwanted kernel without a report; a newer generation stays."""
        if self._is_newer(claim):
            return None
        try:
            self._backend.stop(claim.kernel_id, grace=DEFAULT_GRACE)
            self._backend.remove(claim.kernel_id)
        except BackendError as error:
            logger.warning("kernel %s is unwanted but stays for now: %s", claim.kernel_id, error.message)
            return None
        self._roster.forget(claim.kernel_id)
        logger.info("kernel %s, generation %s: nobody wants it, removed", claim.kernel_id, claim.generation)
        return None

    def give_verdict(self, kernel_id: UUID, generation: int, reason: str, message: str) -> None:
        """Report to the portal that this kernel ends here, for this reason. A failed report is logged."""
        report = KernelReport(
            kernel_id=kernel_id, generation=generation, state=KernelState.TERMINATED, reason=reason, message=message
        )
        try:
            self._portal.report(report)
        except PlatformError as error:
            logger.warning("kernel %s: %s not reported: %s", kernel_id, reason, error.message)

    def _is_newer(self, claim: Claim) -> bool:
        """Return whether the kernel on this agent has a newer generation than the order."""
        return self._roster.generation(claim.kernel_id, default=claim.generation) > claim.generation

    def _finish(self, claim: Claim, ended: Ended, *, forced: bool = False) -> None:
        # Each step can be repeated, so that a crash between two of them loses nothing.
        report = KernelReport(
            kernel_id=claim.kernel_id,
            generation=claim.generation,
            state=KernelState.TERMINATED,
            exit_code=ended.exit_code,
            reason=ended.reason,
            message=ended.message,
            has_cause=ended.has_cause,
        )
        try:
            self._keep_log(claim, forced=forced)
            self._portal.report(report)
            self._backend.remove(claim.kernel_id)
        except PlatformError as error:
            logger.warning("kernel %s ended but stays for now: %s", claim.kernel_id, error.message)
            return
        self._roster.forget(claim.kernel_id)

    def _keep_log(self, claim: Claim, *, forced: bool) -> None:
        try:
            log, truncated = self._backend.read_log(claim.kernel_id, limit=LOG_LIMIT)
            if log:
                self._portal.put_log(claim.kernel_id, claim.generation, log, truncated=truncated)
        except PortalRefused as error:
            logger.warning("kernel %s: the portal does not want its log: %s", claim.kernel_id, error.message)
        except (PlatformError, OSError) as error:
            if not forced:
                raise
            logger.warning("kernel %s is killed and its log is lost: %s", claim.kernel_id, error)
        except ValueError:  # a retry would fail too, and the kernel would hold its slots for ever
            logger.exception("kernel %s: its log cannot be kept and is lost", claim.kernel_id)
