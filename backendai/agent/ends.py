"""How a kernel ends: its log is kept, the portal is told, and only then it is removed."""

from __future__ import annotations

import logging
from uuid import UUID

from backendai.agent.backends.base import Backend, BackendError, Ended, KernelGone
from backendai.agent.lanes import Claim, Move
from backendai.agent.portal import Portal, PortalRefused
from backendai.agent.roster import UNKNOWN, Roster
from backendai.core.errors import PlatformError
from backendai.wire.messages import KernelReport, KernelState

logger = logging.getLogger(__name__)

LOG_LIMIT = 4 * 2**20
DEFAULT_GRACE = 5.0


class Ends:
    """The actions at the end of a kernel's life. An engine or portal that does not answer ends the action without a
    verdict: the kernel stays as it is and the sync loop asks again."""

    def __init__(self, backend: Backend, portal: Portal, roster: Roster) -> None:
        self._backend, self._portal, self._roster = backend, portal, roster

    def stop(self, grace: float, claim: Claim) -> Move | None:
        """End the kernel on order, unless a newer generation of it is here. Without grace it is killed, and a log that
        cannot be kept does not hold up its end."""
        if self._is_newer(claim):
            return None
        try:
            self._backend.stop(claim.kernel_id, grace=grace)
            # Stopped and yet not ended: it was made but never started.
            ended = self._backend.ended(claim.kernel_id) or Ended(None, "", "")
        except KernelGone:
            ended = Ended(None, "", "")
        except BackendError as error:
            logger.warning("kernel %s cannot be stopped now: %s", claim.kernel_id, error.message)
            return None
        self._finish(claim, ended, forced=grace <= 0)
        return None

    def stop_because(self, reason: str, message: str, claim: Claim) -> Move | None:
        """End a kernel that broke a limit which only this node can see, and tell that reason."""
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
        """Finish the kernel if it has ended by itself. Its generation is read only now: it may just have started."""
        claim.generation = self._roster.generation(claim.kernel_id, default=claim.generation)
        if claim.generation == UNKNOWN:
            return None
        try:
            ended = self._backend.ended(claim.kernel_id)
        except BackendError:  # gone counts too: the sync loop gives that verdict, at its second look
            return None
        if ended is not None:
            self._finish(claim, ended)
        return None

    def discard(self, claim: Claim) -> Move | None:
        """Stop and remove a kernel that nobody wants, without a word to the portal; a newer generation stays."""
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
        """Tell the portal that this kernel is not going to run here."""
        report = KernelReport(
            kernel_id=kernel_id, generation=generation, state=KernelState.TERMINATED, reason=reason, message=message
        )
        try:
            self._portal.report(report)
        except PlatformError as error:
            logger.warning("kernel %s: %s not reported: %s", kernel_id, reason, error.message)

    def _is_newer(self, claim: Claim) -> bool:
        """Return whether the kernel that is here was placed after the one that the order means."""
        return self._roster.generation(claim.kernel_id, default=claim.generation) > claim.generation

    def _finish(self, claim: Claim, ended: Ended, *, forced: bool = False) -> None:
        # A crash between two of these steps loses nothing, and the next run repeats them harmlessly.
        report = KernelReport(
            kernel_id=claim.kernel_id,
            generation=claim.generation,
            state=KernelState.TERMINATED,
            exit_code=ended.exit_code,
            reason=ended.reason,
            message=ended.message,
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
        except ValueError:  # the next try would fail alike, and the kernel would keep its slots for ever
            logger.exception("kernel %s: its log cannot be kept and is lost", claim.kernel_id)
