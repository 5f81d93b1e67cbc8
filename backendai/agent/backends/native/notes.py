"""Notes for administrators about an agent that runs native processes."""

from __future__ import annotations

import shutil

from backendai.agent.backends.native.places import NativePlaces
from backendai.agent.backends.native.sandbox import Isolation
from backendai.base.wire.messages import Note

_DOCKER = "install Docker Engine, or start it where it is installed"
_ALLOWED_TO_USERS = (
    "allow user namespaces (sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1; in a container"
    " its security profile decides too)"
)
_ALLOWED_TO_ROOT = "run the agent where root may make namespaces: on the machine itself, or in a privileged container"


def describe(isolation: Isolation, *, hard_limits: bool, places: NativePlaces) -> list[Note]:
    """Return a note for each protection that containers would offer, and about a fault that prevents starts."""
    notes = [
        Note(
            code="process-no-containers",
            message="Kernels run as native processes of this machine, not in containers: there are no images, only the"
            " programs of the machine, and a scratch folder can fill the disk.",
            fix=_how_to_have_containers(isolation),
        ),
        Note(
            code="process-shared-network",
            message="Kernels share the network of this machine: they reach its services on localhost and each other's"
            " ports, and two kernels cannot listen on the same port.",
        ),
    ]
    if isolation.bwrap is None:
        notes.append(
            Note(
                code="process-no-sandbox",
                message=_no_sandbox(isolation, places),
                fix=_how_to_have_a_sandbox(isolation),
            )
        )
    if not hard_limits:
        notes.append(
            Note(
                code="process-soft-limits",
                message="CPU is not limited, and memory only by a look every 2 seconds: a kernel that takes memory"
                " quickly can still harm its neighbours.",
                fix="Run the agent where it may make cgroups (as root, or as a systemd user service).",
            )
        )
    if places.fault:
        notes.append(Note(code="process-starts-nothing", message=places.fault, fix=places.fix))
    return notes


def _no_sandbox(isolation: Isolation, places: NativePlaces) -> str:
    whose = "readable by everybody" if isolation.root else "of the user who runs the agent"
    where = "" if places.new == places.inside else f" Their home folders are in {places.new}."
    said = f"Kernels are not shut in: they see the files {whose} and all processes. The cause: {isolation.why_not}."
    return said + where


def _how_to_have_containers(isolation: Isolation) -> str:
    # Where root may make no namespaces, an engine would not start either.
    first = f"first {_ALLOWED_TO_ROOT}; then " if isolation.root and _is_sandbox_forbidden(isolation) else ""
    return f"To have containers, {first}{_DOCKER}, and start the agent again."


def _how_to_have_a_sandbox(isolation: Isolation) -> str:
    if not _is_sandbox_forbidden(isolation):
        return "Install bubblewrap (and allow user namespaces), and start the agent again."
    allowed = _ALLOWED_TO_ROOT if isolation.root else _ALLOWED_TO_USERS
    return f"Bubblewrap is installed: {allowed}. Then start the agent again."


def _is_sandbox_forbidden(isolation: Isolation) -> bool:
    """Return whether bubblewrap is installed but does not work here."""
    return isolation.bwrap is None and shutil.which("bwrap") is not None
