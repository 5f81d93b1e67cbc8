"""Making images of kernels and removing them: on the portal's word, with the engine, telling what came of it.

The portal names an image in every sync until it has heard what came of it, so an order may be lost and the work broken
off: it begins anew, and finds what was made already. An image that nobody wants when it is made is removed at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event
from uuid import NAMESPACE_OID, UUID, uuid5

from backendai.agent.backends.base import ENGINE_SILENT, Backend, BackendError, Fetched, Made, Progress
from backendai.agent.lanes import Claim, Lanes, Move
from backendai.agent.portal import Portal, PortalRefused
from backendai.core.errors import PlatformError
from backendai.wire.commits import CommitReport, CommitSpec, CommitState

logger = logging.getLogger(__name__)

_SPEAK_SECONDS = 2.0
_NOTHING = Made(size_bytes=0)


class _Unwanted(Exception):
    """Leaves through the backend's push when it was cancelled or the node stops: a signal, not an error."""


class Commits:
    """Images that are made of kernels here, on a lane of their own."""

    def __init__(self, backend: Backend, portal: Portal, lanes: Lanes, *, on_changed: Callable[[], None]) -> None:
        self._backend, self._portal, self._lanes, self._on_changed = backend, portal, lanes, on_changed
        self._draining = Event()

    def begin_soon(self, commit_id: UUID) -> None:
        """Make this image, if the portal still wants it then. One that is under way already goes on."""
        if not self._draining.is_set():
            self._lanes.submit(Claim(commit_id, 0, "commit"), self._commit)

    def drop_soon(self, reference: str) -> None:
        """Remove this image; the next sync names it again while it is there."""
        if not self._draining.is_set():
            claim = Claim(uuid5(NAMESPACE_OID, reference), 0, "commit")
            self._lanes.submit(claim, lambda _: self._drop(reference))

    def drain(self) -> None:
        """Begin nothing from now on, and give up at the next chance what is on its way to a registry."""
        self._draining.set()

    def _commit(self, claim: Claim) -> Move | None:
        spec: CommitSpec | None = None
        try:
            spec = None if self._draining.is_set() else self._portal.fetch_commit(claim.kernel_id)
            if spec is not None:
                self._make(spec)
        except _Unwanted:
            logger.info("the image %s is not wanted any more", claim.kernel_id)
            if spec is not None and not self._draining.is_set():
                self._drop(spec.reference)
        except PlatformError as error:
            logger.warning("image %s: %s", claim.kernel_id, error.message)
        return None

    def _make(self, spec: CommitSpec) -> None:
        self._tell(spec, CommitState.COMMITTING, "The session is being saved.")
        try:
            made = self._backend.commit(spec)
            self._on_changed()
            if spec.push:
                self._tell(spec, CommitState.PUSHING, "It goes to the registry.")
                digest = self._backend.push_image(spec, progress=self._progress(spec))
                made = Made(made.size_bytes, digest)
                self._on_changed()
        except BackendError as error:
            if error.code in ENGINE_SILENT:  # nothing is known: the next sync names it again
                raise
            self._tell(spec, CommitState.FAILED, error.message)
            self._drop(spec.reference)
            return
        self._tell(spec, CommitState.DONE, "", made=made)

    def _drop(self, reference: str) -> Move | None:
        try:
            if self._backend.drop_image(reference):
                self._on_changed()
        except PlatformError as error:
            logger.warning("%s is not removed: %s", reference, error.message)
        return None

    def _progress(self, spec: CommitSpec) -> Progress:
        told_at = time.monotonic()

        def progress(fetched: Fetched) -> None:
            nonlocal told_at
            if self._draining.is_set():
                raise _Unwanted
            if time.monotonic() - told_at >= _SPEAK_SECONDS:
                told_at = time.monotonic()
                self._tell(spec, CommitState.PUSHING, fetched.message, share=fetched.share)

        return progress

    def _tell(
        self,
        spec: CommitSpec,
        state: CommitState,
        message: str,
        *,
        share: float | None = None,
        made: Made = _NOTHING,
    ) -> None:
        """Report; raises _Unwanted when the portal does not want it any more. A word on the way that does not arrive
        costs nothing; the last one is said again when the next sync names the image."""
        report = CommitReport(
            commit_id=spec.commit_id,
            state=state,
            message=message[:500],
            progress=share,
            size_bytes=made.size_bytes,
            digest=made.digest,
        )
        try:
            is_wanted = self._portal.report_commit(report)
        except PortalRefused as error:
            is_wanted = error.status != 404
        except PlatformError as error:
            logger.info("image %s: %s is not reported: %s", spec.commit_id, state, error.message)
            return
        if not is_wanted and state != CommitState.FAILED:
            raise _Unwanted
