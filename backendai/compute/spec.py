"""What somebody asks for when launching: one shape for the browser's form, REST and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from backendai.core.session_kinds import USUAL_KIND


@dataclass(frozen=True, slots=True)
class BroughtFile:
    """A text file for the home folder of a new session; ``path`` is relative to it. It may hold secrets."""

    path: str
    content: str = field(repr=False)

    @property
    def size(self) -> int:
        """The bytes of its text."""
        return len(self.content.encode())


@dataclass(frozen=True, slots=True)
class MountWish:
    """A folder to mount, by id or name. Empty ``target``: by its name in the home; empty ``rights``: all that are
    granted; empty ``path``: the whole folder."""

    folder: str
    path: str = ""
    target: str = ""
    rights: str = ""


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """Kernels of a session that differ from the others. What is empty is as the session says; ``environ`` and
    ``mounts`` come beside the session's."""

    count: int = 1
    image: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)
    shm: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    startup_command: str = ""
    mounts: Sequence[MountWish] = ()


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A launch request as typed; ``services.create`` checks every field and names the one that is wrong.

    ``resources`` are border amounts (``{"cpu": 1, "mem": "512m"}``); empty fields mean the default.
    ``priority`` None: the usual one, or the highest that the policies allow. ``depends_on``: own sessions, by id or
    name, that must have ended well first. ``agents``: the only ones it may run on, by id or name. Sessions of one
    ``launch_id`` belong together (None: a launch of its own); ``placement`` says how they lie on the agents. ``owner``:
    the e-mail address of the person for whom an administrator launches it; empty: it is one's own.
    ``retry_on_agent_loss``: a batch session whose node is lost waits again and runs from the start. ``access_key``: the
    owner's key pair for which it counts; empty: the main one. ``files`` are in the home folder before the command runs.
    ``roles``: kernels that differ, by the name of their role; ``main`` is the first. Without them there are
    ``cluster_size`` kernels alike. ``start_in``: the folder or the mount path of one of the ``mounts``, where programs
    begin; empty: in the home. ``template``: of which version of a template the request was made, with these
    ``parameters``; it is told, and changes nothing.
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
    agents: Sequence[str] = ()
    placement: str = ""
    launch_id: UUID | None = None
    owner: str = ""
    retry_on_agent_loss: bool = False
    access_key: str = ""
    files: Sequence[BroughtFile] = ()
    mounts: Sequence[MountWish] = ()
    start_in: str = ""
    roles: Mapping[str, RoleSpec] = field(default_factory=dict)
    template: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
