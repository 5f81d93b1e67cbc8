"""Texts of notifications about sessions."""

from __future__ import annotations

from django.urls import reverse
from django.utils.translation import gettext as _

from backendai.base.core.messages import values_of
from backendai.base.texts.isolation import isolated
from backendai.base.texts.messages import in_words
from backendai.domain.activity.models import AccessNotice
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.reasons import BY_ADMINISTRATOR
from backendai.domain.compute.status import Status

_LOOKS = {  # icon and tone
    NoticeKind.FAILED: ("alert-circle", "bad"),
    NoticeKind.ENDED: ("alert-triangle", "wait"),
    NoticeKind.ENDING: ("clock", "wait"),
    NoticeKind.IDLE: ("clock", "wait"),
    NoticeKind.STARTING: ("clock", ""),
    NoticeKind.STARTED: ("player-play", ""),
    NoticeKind.FINISHED: ("circle-check", ""),
    NoticeKind.APP_CLOSED: ("link", ""),
}
_OTHER = ("info-circle", "")
_TO = {"folder": "web:folder", "session": "web:session", "template": "web:template"}
_LISTS = {"folders": "web:folders", "image": "web:launch"}


def access_link(notice: AccessNotice) -> str:
    """Return the address of what a notification gives access to; a folder has one once its invitation is accepted."""
    if notice.invitation is not None:
        return reverse("web:folders")
    if notice.subject_type in _TO:
        return reverse(_TO[notice.subject_type], args=[notice.subject_id])
    return reverse(_LISTS.get(notice.subject_type, "web:account"))


def headline(notice: SessionNotice) -> str:
    """Return the headline of a notification, in a few words."""
    if _is_over(notice):
        over = {NoticeKind.IDLE: _("Was idle"), NoticeKind.STARTING: _("Was to start soon")}
        return over.get(NoticeKind(notice.kind), _("Was warned of its end"))
    texts = {
        NoticeKind.LAUNCHED: _("Launched"),
        NoticeKind.STARTING: _("Probably starts within 10 minutes"),
        NoticeKind.STARTED: _("Resumed") if notice.session.resumes else _("Started after its wait"),
        NoticeKind.FINISHED: _("Finished successfully"),
        NoticeKind.FAILED: _("Failed"),
        NoticeKind.ENDED: _("Ended by an administrator") if _has_ender(notice) else _("Ended by the platform"),
        NoticeKind.ENDING: _("Ends soon"),
        NoticeKind.IDLE: _("Idle"),
        NoticeKind.APP_CLOSED: _("Public access has ended"),
    }
    return texts.get(NoticeKind(notice.kind), notice.kind)


def sentence(notice: SessionNotice) -> str:
    """Return what the headline of a notification does not say: a sentence, or an administrator's address; empty if
    there is nothing to add."""
    session: ComputeSession = notice.session
    if _has_ender(notice):
        return isolated(str(values_of(session.reason_text).get("user", "")))
    if notice.kind in (NoticeKind.FAILED, NoticeKind.ENDED):
        return in_words(session.reason_text)
    if _is_over(notice):
        return ""  # a warning speaks of an end to come
    if notice.kind in (NoticeKind.IDLE, NoticeKind.APP_CLOSED):
        return in_words(notice.message)
    if notice.kind == NoticeKind.STARTING:
        return _("A forecast from how long such sessions usually run.")
    if notice.kind == NoticeKind.ENDING:
        usual = _("The session has nearly reached its time limit. Save what you need elsewhere first.")
        return in_words(notice.message) or usual
    return ""


def tone(notice: SessionNotice) -> str:
    """Return the tone of a notification's colour: bad, wait, or empty."""
    return "" if _is_over(notice) else _LOOKS.get(NoticeKind(notice.kind), _OTHER)[1]


def icon_of(notice: SessionNotice) -> str:
    """Return the name of a notification's icon."""
    return _LOOKS.get(NoticeKind(notice.kind), _OTHER)[0]


def _has_ender(notice: SessionNotice) -> bool:
    """Return whether the notification tells of an end that an administrator requested."""
    return notice.kind == NoticeKind.ENDED and notice.session.status_reason in BY_ADMINISTRATOR


def _is_over(notice: SessionNotice) -> bool:
    """Return whether the notification speaks of what was to come, and has come."""
    if notice.kind == NoticeKind.STARTING:
        return notice.session.status != Status.PENDING
    return notice.kind in (NoticeKind.IDLE, NoticeKind.ENDING) and notice.session.is_terminal
