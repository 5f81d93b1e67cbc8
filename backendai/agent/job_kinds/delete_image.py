"""Deleting an image that was made of a session here; the portal names it again while it is there."""

from __future__ import annotations

from backendai.agent.backends.abilities import Committing
from backendai.agent.jobs.handlers import JobHandler, JobProgress, Outcome
from backendai.wire.capabilities import Capability
from backendai.wire.commits import DELETE, DeleteWork


class Handler(JobHandler):
    """Deletes no other image than those that bear our labels."""

    _backend: Committing

    kind, work, needs = DELETE, DeleteWork, Capability.COMMIT

    def run(self, work: DeleteWork, progress: JobProgress) -> Outcome:
        """Delete the image unless a container needs it."""
        if self._backend.drop_image(work.reference):
            self._on_images_changed()
        return Outcome()
