"""A launch request, in one form for the browser, REST and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from backendai.base.core.session_kinds import USUAL_KIND


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A text file for a new session's home. ``path``: relative to the home. The text may contain secrets."""

    path: str
    content: str = field(repr=False)

    @property
    def size(self) -> int:
        """The size of the text in bytes."""
        return len(self.content.encode())


@dataclass(frozen=True, slots=True)
class MountRequest:
    """A requested mount of a folder, by id or name. Empty ``target``: the folder's name in the home. Empty ``rights``:
    all granted rights. Empty ``path``: the whole folder."""

    folder: str
    path: str = ""
    target: str = ""
    rights: str = ""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """Kernels of a session with their own values. Empty fields mean the session's values; ``environ`` and ``mounts``
    are added to the session's.

    ``on_failure``: the effect of a failed kernel (empty: the session ends). ``after``: roles that must be ready before
    its kernels start. ``ready``: the readiness check, as ``{"tcp": port, "within": seconds}`` (empty: a kernel is ready
    when its main process is alive).
    """

    count: int = 1
    image: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)
    shm: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    startup_command: str = ""
    mounts: Sequence[MountRequest] = ()
    on_failure: str = ""
    after: Sequence[str] = ()
    ready: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A launch request as entered. ``services.create`` validates every field. Empty fields mean the default.

    - ``resources``: strings or numbers (``{"cpu": 1, "mem": "512m"}``).
    - ``priority``: None means the default, or the highest that policies allow.
    - ``depends_on``: own sessions, by id or name, that must end first.
    - ``depends_when``: how they must end: ``success`` (the default), ``failure`` or ``any``.
    - ``agents``: designated agents, by id or name.
    - ``launch_id``: sessions with the same id belong together; ``placement`` distributes them.
    - ``owner``: e-mail address of the person for whom an administrator launches (empty: oneself).
    - ``retry_on_agent_loss``: a batch session whose agent is lost runs again from the start.
    - ``access_key``: the owner's key pair to which the session counts (empty: the main key pair).
    - ``files``: written to the home before the command runs.
    - ``roles``: the kernels by role, if they differ, ``main`` first; without roles there are ``cluster_size`` equal
      kernels.
    - ``start_in``: working directory, as folder or mount path of one of the ``mounts``, or the path of the home (empty:
      the only folder that is mounted for writing, else the home).
    - ``done_when``: a batch session ends when all kernels of this role have finished (empty: the main kernel; ``all``:
      all kernels).
    - ``command_in``: with ``main``, only the main kernel runs the command, after the others have started (empty: each
      kernel runs it).
    - ``template``: version of the template that rendered the request with these ``parameters``; informational.
    """

    image: str
    name: str = ""
    session_type: str = USUAL_KIND.name
    resources: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    resource_group: str = ""
    project: UUID | str | None = None
    shm: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    startup_command: str = ""
    preopen_ports: Sequence[int] = ()
    starts_at: datetime | None = None
    cluster_size: int = 1
    cluster_mode: str = "single-node"
    priority: int | None = None
    batch_timeout: timedelta | None = None
    depends_on: Sequence[str] = ()
    depends_when: str = ""
    agents: Sequence[str] = ()
    placement: str = ""
    launch_id: UUID | None = None
    owner: str = ""
    retry_on_agent_loss: bool = False
    access_key: str = ""
    files: Sequence[LaunchFile] = ()
    mounts: Sequence[MountRequest] = ()
    start_in: str = ""
    roles: Mapping[str, RoleSpec] = field(default_factory=dict)
    done_when: str = ""
    command_in: str = ""
    template: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
