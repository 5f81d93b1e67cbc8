"""What an administrator should know about a node that runs native processes."""

from __future__ import annotations

from pathlib import Path

from backendai.agent.backends.process_sandbox import Isolation, open_to_all
from backendai.wire.messages import Note

_DOCKER = "Install Docker Engine and start the agent again."


def describe(isolation: Isolation, *, hard_limits: bool, data: Path) -> list[Note]:
    """Return one note for each protection that containers would give and this node does not."""
    notes = [
        Note(
            code="process-no-containers",
            message="Kernels run as native processes of this machine, not in containers: there are no images, only the"
            " programs of the machine, and a scratch folder can fill the disk.",
            fix=_DOCKER,
        ),
        Note(
            code="process-shared-network",
            message="Kernels share the network of this machine: they reach its services on localhost and each other's"
            " ports, and two kernels cannot listen on the same port.",
            fix=_DOCKER,
        ),
    ]
    if isolation.bwrap is None:
        notes.append(Note(code="process-no-sandbox", message=_no_sandbox(isolation), fix=_fix_sandbox()))
    if not hard_limits:
        notes.append(
            Note(
                code="process-soft-limits",
                message="CPU is not limited, and memory only by a look every 2 seconds: a kernel that takes memory"
                " quickly can still harm its neighbours.",
                fix=f"{_DOCKER} Or run the agent where it may make cgroups (as root, or as a systemd user service).",
            )
        )
    if must_be_open(isolation) and not open_to_all(data / "kernels"):
        notes.append(
            Note(
                code="process-data-closed",
                message=f"Kernels run as users of their own, who cannot reach {data}.",
                fix="Choose a data folder outside of /root, or install bubblewrap.",
            )
        )
    return notes


def must_be_open(isolation: Isolation) -> bool:
    """Return whether the users of kernels walk to their scratch folder by themselves."""
    return isolation.root and isolation.bwrap is None


def _no_sandbox(isolation: Isolation) -> str:
    whose = "readable by everybody" if isolation.root else "of the user who runs the agent"
    return f"Kernels are not shut in: they see the files {whose} and all processes. The cause: {isolation.why_not}."


def _fix_sandbox() -> str:
    return "Install Docker Engine, or bubblewrap (and allow user namespaces), and start the agent again."
