"""Deletes an image that was saved from a session here. The portal repeats the job until the image is gone."""

from __future__ import annotations

from backendai.agent.backends.abilities import Committing
from backendai.agent.jobs.handlers import JobHandler, JobProgress, Outcome
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.commits import DELETE, DeleteWork


class Handler(JobHandler):
    """Deletes only images with the platform's labels."""

    _backend: Committing

    kind, work, needs = DELETE, DeleteWork, Capability.COMMIT

    def run(self, work: DeleteWork, progress: JobProgress) -> Outcome:
        """Delete the image unless a container uses it."""
        if self._backend.drop_image(work.reference):
            self._on_images_changed()
        return Outcome()
