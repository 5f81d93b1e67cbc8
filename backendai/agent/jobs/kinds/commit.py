"""Creates an image from a running kernel and pushes it to its registry. A failed job leaves nothing behind."""

from __future__ import annotations

from backendai.agent.backends.abilities import Committing
from backendai.agent.backends.base import SavedImage
from backendai.agent.jobs.handlers import JobHandler, JobProgress, Outcome
from backendai.base.core.messages import Message
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.commits import COMMIT, PUSHING, CommitResult, CommitSpec


class Handler(JobHandler):
    """Saves a kernel as an image. An image that was created before the agent stopped is reused."""

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
