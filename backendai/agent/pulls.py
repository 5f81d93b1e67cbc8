"""Fetching images ahead of time: on the portal's word, with the engine, telling how far it is.

The portal names a pull in every sync until it has heard what came of it, so an order may be lost and a pull broken off:
it begins anew. The account for the registry is fetched at the beginning of a pull and goes to the engine alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event
from uuid import UUID

from backendai.agent.backends.base import ENGINE_SILENT, Backend, BackendError, Fetched, Progress
from backendai.agent.lanes import Claim, Lanes, Move
from backendai.agent.portal import Portal, PortalRefused
from backendai.core.errors import PlatformError
from backendai.wire.pulls import PullReport, PullSpec, PullState

logger = logging.getLogger(__name__)

_SPEAK_SECONDS = 2.0


class _Unwanted(Exception):
    """Leaves through the backend's pull when it was cancelled or the node stops: a signal, not an error."""


class Pulls:
    """Pulls have a lane of their own: they must not hold up kernels that wait for their image."""

    def __init__(self, backend: Backend, portal: Portal, lanes: Lanes, *, on_pulled: Callable[[], None]) -> None:
        self._backend, self._portal, self._lanes, self._on_pulled = backend, portal, lanes, on_pulled
        self._draining = Event()

    def begin_soon(self, pull_id: UUID) -> None:
        """Fetch this image, if the portal still wants it then. One that is under way already goes on."""
        if not self._draining.is_set():
            self._lanes.submit(Claim(pull_id, 0, "fetch"), self._fetch)

    def drain(self) -> None:
        """Begin nothing from now on, and give up at the next chance what is under way."""
        self._draining.set()

    def _fetch(self, claim: Claim) -> Move | None:
        try:
            spec = None if self._draining.is_set() else self._portal.fetch_pull(claim.kernel_id)
            if spec is not None:
                self._pull(spec)
        except _Unwanted:
            logger.info("pull %s is not wanted any more", claim.kernel_id)
        except PlatformError as error:
            logger.warning("pull %s: %s", claim.kernel_id, error.message)
        return None

    def _pull(self, spec: PullSpec) -> None:
        self._tell(spec, PullState.PULLING, "It begins.")
        try:
            if spec.digest and self._backend.has_image(spec.exact_image):
                self._tell(spec, PullState.DONE, "It was there already.")
                return
            progress = self._progress(spec)
            self._backend.pull(spec.exact_image, timeout=spec.timeout, progress=progress, access=spec.access)
        except BackendError as error:
            if error.code in ENGINE_SILENT:  # nothing is known: the next sync names it again
                raise
            self._tell(spec, PullState.FAILED, error.message)
            return
        self._on_pulled()
        self._tell(spec, PullState.DONE, "It has come.")

    def _progress(self, spec: PullSpec) -> Progress:
        told_at = time.monotonic()

        def progress(fetched: Fetched) -> None:
            nonlocal told_at
            if self._draining.is_set():
                raise _Unwanted
            if time.monotonic() - told_at >= _SPEAK_SECONDS:
                told_at = time.monotonic()
                self._tell(spec, PullState.PULLING, fetched.message, fetched.share)

        return progress

    def _tell(self, spec: PullSpec, state: PullState, message: str, share: float | None = None) -> None:
        """Report; raises _Unwanted when the portal does not want it any more. A word on the way that does not arrive
        costs nothing; the last one is said again when the next sync names the pull."""
        report = PullReport(pull_id=spec.pull_id, state=state, message=message[:500], progress=share)
        try:
            is_wanted = self._portal.report_pull(report)
        except PortalRefused as error:
            is_wanted = error.status != 404
        except PlatformError as error:
            logger.info("pull %s: %s is not reported: %s", spec.pull_id, state, error.message)
            return
        if not is_wanted and state == PullState.PULLING:
            raise _Unwanted
