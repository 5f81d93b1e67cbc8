"""Decides who may reach which kernel for which purpose. One query if access is allowed, four for files of system
sessions."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import SessionKind
from backendai.base.wire.tickets import Purpose
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.querysets import SessionQuerySet
from backendai.domain.compute.services.launching.system_sessions import lost_folders
from backendai.domain.compute.status import ShareRight, Status
from backendai.gates.gateways.targets import Denied


@dataclass(frozen=True, slots=True)
class _Rule:
    """The conditions of a purpose.

    ``runs``: kernel and session must be RUNNING. ``owned``: only for the owner, as the owner's own keys and files are
    used. ``shared``: the right of a share that is enough (None: no share is). ``feature``: a feature that the session's
    kind must have. ``shows_files``: access to a system session ends when its owner loses the rights to one of its
    folders.
    """

    runs: bool = True
    owned: bool = False
    shared: ShareRight | None = None
    feature: str = ""
    shows_files: bool = False


_RULES: dict[Purpose, _Rule] = {
    "terminal": _Rule(feature="has_shell", shared=ShareRight.USE),
    "app": _Rule(feature="has_services", shared=ShareRight.USE),
    "execute": _Rule(feature="executes_code", shared=ShareRight.USE),
    "files": _Rule(shows_files=True),
    "home": _Rule(shows_files=True),
    "cut": _Rule(),
    "shell": _Rule(owned=True, shows_files=True),
    "log": _Rule(runs=False, shared=ShareRight.VIEW),  # of a kernel that has ended, the kept log is read
}


def reach(
    user: User,
    purpose: Purpose,
    *,
    session_id: UUID | None = None,
    kernel_id: UUID | None = None,
    generation: int | None = None,
    is_read_only: bool = False,
) -> Kernel:
    """Return the kernel (by default the session's main one) with agent and session.

    ``is_read_only``: the caller drops all input, so that the right to view is enough where a share opens the purpose.
    A missing kernel and one that the user may not see give the same error. Raises Denied: ``no-session``,
    ``no-kernel``, ``not-for-this-type``, ``not-running`` (also for another generation), ``folder-revoked``.
    """
    assert session_id or kernel_id
    rule = _RULES[purpose]
    sessions = _sessions(user, ShareRight.VIEW if rule.shared and is_read_only else rule.shared)
    sessions = sessions.filter(owner=user) if rule.owned else sessions
    sessions = sessions if session_id is None else sessions.filter(pk=session_id)
    kernels = Kernel.objects.select_related("agent", "session").filter(session__in=sessions)
    wanted = kernels.filter(rank=0) if kernel_id is None else kernels.filter(pk=kernel_id)
    kernel: Kernel | None = wanted.first()
    if kernel is None and session_id is not None and sessions.exists():
        raise Denied("no-kernel", "There is no such kernel.")
    if kernel is None:
        raise Denied("no-session", Message("Session not found."))
    runs = Status.RUNNING == kernel.status == kernel.session.status and kernel.agent is not None
    if (rule.runs and not runs) or generation not in (None, kernel.generation):
        raise Denied("not-running", "The session is not running.")
    if rule.feature and not getattr(kernel.session.kind, rule.feature):
        is_code = rule.feature == "executes_code"
        why = why_no_code(kernel.session.kind) if is_code else "Sessions of this type do not offer that."
        raise Denied("not-for-this-type", why)
    if rule.shows_files and not kernel.session.kind.has_shell and (lost := lost_folders(kernel.session)):
        raise Denied(
            "folder-revoked",
            Message("You no longer have the rights to {names}: connect again to open the rest.", names=", ".join(lost)),
        )
    return kernel


def why_no_code(kind: SessionKind) -> Message:
    """Return why sessions of a kind without code execution have neither that nor home files, and what to do instead."""
    if not kind.has_shell:
        return Message(
            "Only interactive sessions run code and show their home files on request. This session opens folders for "
            "file clients: launch an interactive session that mounts them."
        )
    return Message(
        "Only interactive sessions run code and show their home files on request. Use the terminal or SSH of this "
        "session, or launch an interactive session."
    )


def still_visible(user: User | None, session_id: UUID, shared: ShareRight | None = None) -> bool:
    """Return whether the user may still see the session. ``shared``: the right of a share that is enough, too."""
    return user is not None and _sessions(user, shared).filter(pk=session_id).exists()


def _sessions(user: User, shared: ShareRight | None) -> SessionQuerySet:
    sessions: SessionQuerySet = ComputeSession.objects.all()
    return sessions.visible_to(user) if shared is None else sessions.open_to(user, shared)
