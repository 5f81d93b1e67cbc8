"""Guest agents in containers: each is started by a detached exec as the session's user."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from docker.errors import APIError

from backendai.agent.backends.base import SH, BackendError, KernelGone
from backendai.agent.backends.docker.create import WORKDIR
from backendai.agent.backends.docker.disk.scratch import Scratch
from backendai.agent.backends.docker.end import is_alive
from backendai.agent.backends.docker.engine import Engine, container_name
from backendai.agent.backends.guest_host import INSIDE, PROGRAM, GuestPlace
from backendai.agent.backends.shared.home import WAIT
from backendai.agent.backends.shared.kit import INSIDE as KIT_INSIDE

RUNTIME = "ai.backend.runtime-path"
_GONE = "This kernel does not run any more."
LAUNCH = f"""
for python in "$1" python3 python; do
  case "$python" in *python*) ;; *) continue ;; esac
  command -v "$python" >/dev/null 2>&1 && "$python" -I -S -c "$2" || continue
  exec "$python" -I -S {INSIDE}/{PROGRAM} serve {INSIDE}
done
exec {KIT_INSIDE}/current/python3 -I -S {INSIDE}/{PROGRAM} serve {INSIDE}
""".strip()
IS_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"


class DockerGuests(GuestPlace):
    """The guests of one agent's containers."""

    def __init__(self, engine: Engine, scratch: Scratch) -> None:
        self._engine, self._scratch = engine, scratch

    def folder(self, kernel_id: UUID) -> Path:
        """Return the folder that the container mounts. Raises BackendError for a container of an older version without
        it."""
        with self._engine.asking():
            found = self._engine.find(kernel_id)
        if found is None or not is_alive(found):
            raise KernelGone(_GONE)
        if not any(mount.get("Destination") == INSIDE for mount in found["Mounts"]):
            text = "The session was started before the agent was updated: start a new session to run code in it."
            raise BackendError(text, code="started-before-update")
        return self._scratch.guest(kernel_id)

    def was_launched(self, kernel_id: UUID) -> bool:
        """Return whether the guest's program is in the folder."""
        return (self._scratch.guest(kernel_id) / PROGRAM).exists()

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest by an exec. Uses the image's interpreter, else the first Python found, else the kit's."""
        self._scratch.kit.ensure()
        with self._engine.asking() as client:
            found = self._engine.find(kernel_id)
            if found is None or not is_alive(found):
                raise KernelGone(_GONE)
            runtime = (found["Config"]["Labels"] or {}).get(RUNTIME, "")
            command = [SH, "-c", WAIT, "wait", WORKDIR, SH, "-c", LAUNCH, "guest", runtime, IS_NEW_ENOUGH]
            try:
                made = client.exec_create(container_name(kernel_id), command)
                client.exec_start(made["Id"], detach=True)
            except APIError as error:
                if error.status_code in (404, 409):
                    raise KernelGone(_GONE) from error
                raise
