"""The kinds of jobs that an agent can do."""

from __future__ import annotations

import contextlib
from uuid import UUID

from backendai.agent.backends.abilities import Committing, HomeStoring, Imaging, capabilities_with
from backendai.agent.backends.base import Backend, BackendError, KernelGone, SavedImage
from backendai.agent.jobs.handlers import JobHandler, JobProgress, JobUnwanted, Outcome
from backendai.base.core.messages import Message
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.homes import STORE, StoreWork
from backendai.base.wire.images import COMMIT, DELETE, PULL, PUSHING, CommitResult, CommitSpec, DeleteWork, PullWork


class CommitHandler(JobHandler):
    """Saves a kernel as an image, and pushes it to its registry. An image that was created before the agent stopped is
    reused; a failed job leaves nothing behind."""

    _backend: Committing

    kind, work = COMMIT, CommitSpec
    needs, begins = Capability.COMMIT, Message("The session is being saved.")
    at_once = 2

    def run(self, work: CommitSpec, progress: JobProgress) -> Outcome:
        """Create the image, and push it if the work demands it."""
        made = self._backend.commit(work)
        self._on_images_changed()
        if work.push:
            progress.tell(Message("Pushing to the registry."), phase=PUSHING)
            made = SavedImage(made.size_bytes, self._backend.push_image(work, progress=progress.heed))
            self._on_images_changed()
        return Outcome(result=CommitResult(size_bytes=made.size_bytes, digest=made.digest).model_dump())

    def undo(self, work: CommitSpec) -> None:
        """Delete the image."""
        if self._backend.drop_image(work.reference):
            self._on_images_changed()


class DeleteImageHandler(JobHandler):
    """Deletes an image that was saved from a session here, and no other one. The portal repeats the job until the image
    is gone."""

    _backend: Committing

    kind, work, needs = DELETE, DeleteWork, Capability.COMMIT

    def run(self, work: DeleteWork, progress: JobProgress) -> Outcome:
        """Delete the image unless a container uses it."""
        if self._backend.drop_image(work.reference):
            self._on_images_changed()
        return Outcome()


class PullHandler(JobHandler):
    """Pulls images ahead of time in a queue of their own, so that waiting sessions are not delayed. Only the engine
    gets the registry's account."""

    _backend: Imaging

    kind, work = PULL, PullWork
    needs, begins = Capability.IMAGES, "It begins."
    at_once = 2

    def run(self, work: PullWork, progress: JobProgress) -> Outcome:
        """Pull the image unless exactly this digest is here."""
        if work.digest and self._backend.has_image(work.exact_image):
            return Outcome("It was there already.")
        self._backend.pull(
            work.exact_image, timeout=progress.seconds_left(), progress=progress.heed, access=work.access
        )
        self._on_images_changed()
        return Outcome("It has come.")


class StoreHomeHandler(JobHandler):
    """Stores the home of a kernel, whose programs stand still from then on. If that fails they go on, as if nothing had
    happened. Where the order has a grace, the program is ended first, and its kernel stays until the portal ends it."""

    _backend: HomeStoring

    kind, work = STORE, StoreWork
    needs, begins = Capability.HOMES, Message("The home of the session is being stored.")
    at_once = 2

    def run(self, work: StoreWork, progress: JobProgress) -> Outcome:
        """Freeze the kernel, or end its program, and store its home. The portal ends the kernel afterwards."""
        here = {(one.kernel_id, one.generation): one.running for one in self._backend.kernels()}
        is_running = here.get((work.kernel_id, work.generation))
        if is_running is None or not (is_running or work.grace is not None):
            raise KernelGone("The session ended before its home was stored.")
        if work.grace is not None:
            self._end_program(work.kernel_id, work.grace, progress)
            return Outcome(result=self._backend.store_home(work, progress.heed).model_dump())
        try:
            self._backend.freeze(work.kernel_id)
            result = self._backend.store_home(work, progress.heed)
        except BaseException:  # also when the agent stops: the next one begins again
            with contextlib.suppress(BackendError):
                self._backend.thaw(work.kernel_id)
            raise
        return Outcome(result=result.model_dump())

    def _end_program(self, kernel_id: UUID, grace: float, progress: JobProgress) -> None:
        """End the kernel's program, unless an earlier agent has done so. Raises JobUnwanted if it ended by itself, or
        with success: the report of that ends the session."""
        if self._backend.ended(kernel_id) is None:
            progress.tell(Message("The program has {seconds} s to save its state.", seconds=f"{grace:g}"))
            self._backend.stop(kernel_id, grace=grace)
        ended = self._backend.ended(kernel_id)
        if ended is None or ended.reason or ended.exit_code == 0:
            raise JobUnwanted
        progress.tell(Message("The program has ended, and its home is being stored."))

    def undo(self, work: StoreWork) -> None:
        """Let the kernel go on, and delete an incomplete archive."""
        self._backend.thaw(work.kernel_id)
        self._backend.drop_part(work.home)


JOB_HANDLERS: tuple[type[JobHandler], ...] = (CommitHandler, DeleteImageHandler, PullHandler, StoreHomeHandler)


def handlers_for(backend: Backend) -> list[type[JobHandler]]:
    """Return the handlers that this backend supports."""
    can = capabilities_with(backend)
    return [one for one in JOB_HANDLERS if one.needs is None or one.needs in can]
