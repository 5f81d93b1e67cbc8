"""The actions on a session's panel, in a fixed order. A disabled action has a reason."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext as _

from backendai.base.texts.messages import in_words
from backendai.base.wire.capabilities import Capability
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import has_apps
from backendai.domain.compute.services.images.commits import obstacle_to_commit
from backendai.domain.compute.services.launching.sharing import may_be_shared
from backendai.domain.compute.status import STARTING, ShareRight, Status
from backendai.gates.gateways.reach import why_no_code

_OPENED = {
    ShareRight.VIEW: frozenset({"terminal", "log"}),
    ShareRight.USE: frozenset({"apps", "terminal", "console", "files", "log"}),
}


@dataclass(frozen=True, slots=True)
class Action:
    """A button with its address, its dialog (empty: none), and the reason if it is disabled."""

    key: str
    label: str
    icon: str
    address: str
    box: str = ""
    obstacle: str = ""
    in_new_window: bool = False

    @property
    def is_tab(self) -> bool:
        """Whether the session's page has a tab for it, and so no button."""
        return self.key in ("terminal", "log")


def actions_of(
    session: ComputeSession,
    agent: Agent | None,
    *,
    in_drawer: bool,
    is_own: bool,
    guest: ShareRight | None = None,
    kept_log: int | None = None,
) -> list[Action]:
    """Return the buttons of a session's panel.

    A live session has apps, terminal, SSH, log, saving as image or template, sharing, and terminate; an ended one has
    log and template. ``guest``: the right of somebody with whom it is shared, who has only the buttons for this.
    ``agent`` is that of the main kernel; ``kept_log`` is the size of its stored log in bytes.
    """
    page = reverse("web:session", args=[session.pk])
    if session.is_terminal:
        log = [] if _no_log(session, kept_log) else [Action("log", _("Log"), "file-text", f"{page}#log")]
        return [*log, *_template(session, is_own=is_own)]
    ways = _ways_in(session, agent, in_drawer, kept_log)
    if guest:
        return [one for one in ways if one.key in _OPENED[guest]]
    end = _("Cancel") if session.status == Status.PENDING else _("Terminate")
    return [
        *ways[:-1],
        _ssh(session, is_own=is_own),
        ways[-1],
        Action(
            "commit",
            _("Save as image"),
            "device-floppy",
            reverse("web:session_commit", args=[session.pk]),
            "commit",
            _no_commit(session, agent, is_own=is_own),
        ),
        *_template(session, is_own=is_own),
        *_share(session, is_own=is_own),
        *_stop(session),
        Action("terminate", end, "power", reverse("web:terminate", args=[session.pk]), "terminate"),
    ]


def _ways_in(session: ComputeSession, agent: Agent | None, in_drawer: bool, kept_log: int | None) -> list[Action]:
    page = reverse("web:session", args=[session.pk])
    return [
        Action("apps", _("Apps"), "apps", reverse("web:app_launcher", args=[session.pk]), "apps", why_no_apps(session)),
        Action("terminal", _("Terminal"), "terminal-2", f"{page}#terminal", "", _no_terminal(session), in_drawer),
        *_console(session),
        *_files(session, agent),
        Action("log", _("Log"), "file-text", f"{page}#log", "", _no_log(session, kept_log)),
    ]


def _share(session: ComputeSession, *, is_own: bool) -> list[Action]:
    if not is_own or not may_be_shared(session):
        return []
    return [Action("share", _("Share"), "users", reverse("web:session_sharing", args=[session.pk]), "share")]


def _stop(session: ComputeSession) -> list[Action]:
    """Return the button that stops the session; its dialog says what is kept, or why that is not possible."""
    if not session.can_stop or session.status != Status.RUNNING:
        return []
    return [Action("stop", _("Stop"), "player-pause", reverse("web:session_stop", args=[session.pk]), "stop")]


def why_no_apps(session: ComputeSession) -> str:
    """Return why the apps of a session cannot be opened now; empty if they can."""
    if session.is_running and not has_apps(session):
        return _("The image has no apps, and no port was opened.")
    return _no_terminal(session)


def why_no_console(session: ComputeSession) -> str:
    """Return why a session cannot run code now; empty if it can."""
    if not session.kind.executes_code:
        return in_words(why_no_code(session.kind))
    return _no_terminal(session)


def _console(session: ComputeSession) -> list[Action]:
    if not session.kind.executes_code:
        return []
    address = reverse("web:console", args=[session.pk])
    return [Action("console", _("Console"), "player-play", address, "", why_no_console(session))]


def why_no_files(session: ComputeSession, agent: Agent | None) -> str:
    """Return why the home folder of a session cannot be opened now; empty if it can."""
    if agent is not None and Capability.SIMULATED in capabilities_of(agent):
        return _("A simulated session has no files.")
    return _no_terminal(session)


def _files(session: ComputeSession, agent: Agent | None) -> list[Action]:
    if not session.kind.executes_code:
        return []
    address = reverse("web:home", args=[session.pk])
    return [Action("files", _("Files"), "folder", address, "", why_no_files(session, agent))]


def _no_terminal(session: ComputeSession) -> str:
    if not session.kind.has_shell:
        return _("The session is for access to folders only.")
    if session.is_running:
        return ""
    if session.is_terminal:
        return _("The session has ended.")
    if session.status == Status.TERMINATING:
        return _("The session is being ended.")
    if session.status in (Status.STOPPING, Status.STOPPED):
        return _("The session is stopped. Resume it first.")
    return _("The session does not run yet.")


def _ssh(session: ComputeSession, *, is_own: bool) -> Action:
    if not session.kind.has_shell:
        return Action("ssh", "SFTP", "link", reverse("web:folders_sftp"))
    obstacle = _no_terminal(session) if is_own else _("Only its owner can use a session by SSH.")
    return Action("ssh", "SSH", "key", reverse("web:session_ssh", args=[session.pk]), "ssh", obstacle)


def _template(session: ComputeSession, *, is_own: bool) -> list[Action]:
    if not is_own:
        return []
    return [Action("template", _("Save as template"), "stack-2", f"{reverse('web:template_new')}?session={session.pk}")]


def _no_log(session: ComputeSession, kept_log: int | None) -> str:
    if session.status == Status.PENDING or session.status in STARTING - {Status.CREATING}:
        return _("The log begins when the session starts.")
    if session.status == Status.CANCELLED or (session.is_terminal and not session.started_at and not kept_log):
        return _("The session never ran, so there is no log.")
    return ""


def _no_commit(session: ComputeSession, agent: Agent | None, *, is_own: bool) -> str:
    if not is_own:
        return _("Only its owner may save a session as an image.")
    obstacle = obstacle_to_commit(session, agent)
    return _no_terminal(session) or (in_words(obstacle[1]) if obstacle else "")
