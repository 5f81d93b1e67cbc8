"""The presentation of a status: its word, colour and movement; the meaning of its changes; and the exit of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext_noop as _noop

from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.reasons import ReasonKind, codes_of


@dataclass(frozen=True, slots=True)
class Appearance:
    """The word of a status, its tone (busy, good, wait, bad, over), and whether it moves."""

    english: str
    tone: str
    is_moving: bool = False

    @property
    def word(self) -> str:
        """The word in the language of the page."""
        return _(self.english)


_LOOKS = {
    "PENDING": Appearance(_noop("Pending"), "wait"),
    "SCHEDULED": Appearance(_noop("Scheduled"), "busy", is_moving=True),
    "PULLING": Appearance(_noop("Pulling image"), "busy", is_moving=True),
    "CREATING": Appearance(_noop("Creating"), "busy", is_moving=True),
    "RUNNING": Appearance(_noop("Running"), "good"),
    "STOPPING": Appearance(_noop("Stopping"), "busy", is_moving=True),
    "STOPPED": Appearance(_noop("Stopped"), "over"),
    "TERMINATING": Appearance(_noop("Terminating"), "over", is_moving=True),
    "TERMINATED": Appearance(_noop("Terminated"), "over"),
    "CANCELLED": Appearance(_noop("Cancelled"), "over"),
    "ERROR": Appearance(_noop("Error"), "bad"),
    "ALIVE": Appearance(_noop("Alive"), "good"),
    "LOST": Appearance(_noop("Lost"), "bad"),
    "SUCCESS": Appearance(_noop("Success"), "good"),
    "FAILURE": Appearance(_noop("Failure"), "bad"),
    "FAILED": Appearance(_noop("Failed"), "bad"),
    "EXPIRED": Appearance(_noop("Expired"), "bad"),
    "GIVE_UP": Appearance(_noop("Given up"), "bad"),
    "NEED_RETRY": Appearance(_noop("Trying again"), "wait"),
    "SUCCEEDED": Appearance(_noop("Succeeded"), "good"),
    "PAUSED": Appearance(_noop("Paused"), "wait"),
    "WAITING": Appearance(_noop("Waiting"), "wait"),
    "QUEUED": Appearance(_noop("Queued"), "wait"),
    "SKIPPED": Appearance(_noop("Skipped"), "over"),
}

_MEANINGS = {
    "SCHEDULED": _noop("An agent was chosen."),
    "PULLING": _noop("The agent is pulling the image."),
    "CREATING": _noop("The agent is creating the kernel."),
    "RUNNING": _noop("It is ready to be used."),
    "STOPPING": _noop("Its files are being stored."),
    "STOPPED": _noop("Its files are stored, and it holds no resources."),
    "TERMINATING": _noop("Termination was requested."),
    "TERMINATED": _noop("Termination is confirmed."),
    "CANCELLED": _noop("Removed from the queue."),
}


def meaning_of(from_status: str, to_status: str) -> str:
    """Return the meaning of a change of status in a sentence; empty if unknown."""
    if not from_status:
        return _("Launched.")
    return _(_MEANINGS[to_status]) if to_status in _MEANINGS and from_status != to_status else ""


def appearance_of(status: str) -> Appearance:
    """Return the presentation of a status; an unknown one is its own word in grey."""
    return _LOOKS.get(status) or Appearance(status.replace("_", " ").capitalize(), "over")


_ON_ORDER = frozenset({*codes_of(ReasonKind.REQUEST, ReasonKind.IDLE, ReasonKind.LIMIT), "agent-drained"})
_STOPPED = {143: _noop("stopped (SIGTERM)"), 137: _noop("stopped (SIGKILL)")}


def was_stopped(kernel: Kernel) -> bool:
    """Return whether the exit code only shows that the process was ordered to end, which is no failure."""
    return kernel.exit_code in _STOPPED and kernel.status_reason in _ON_ORDER


def exit_words(kernel: Kernel) -> str:
    """Return the exit code as text; empty if there is none."""
    if kernel.exit_code is None:
        return ""
    if was_stopped(kernel):
        return _(_STOPPED[kernel.exit_code])
    return _("exit %(code)s") % {"code": kernel.exit_code}
