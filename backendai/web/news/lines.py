"""News of sessions in words: what a notice says now."""

from __future__ import annotations

from django.utils.translation import gettext as _

from backendai.activity.notices import NoticeKind
from backendai.compute.models import ComputeSession
from backendai.compute.notice_models import SessionNotice
from backendai.texts.sentences import in_words

_TONES = {NoticeKind.FAILED: "bad", NoticeKind.ENDED: "wait", NoticeKind.ENDING: "wait", NoticeKind.IDLE: "wait"}
_ICONS = {
    NoticeKind.FAILED: "alert-circle",
    NoticeKind.ENDED: "alert-triangle",
    NoticeKind.ENDING: "clock",
    NoticeKind.IDLE: "clock",
    NoticeKind.STARTED: "player-play",
    NoticeKind.APP_CLOSED: "link",
}


def headline(notice: SessionNotice) -> str:
    """Return what happened, in a few words."""
    texts = {
        NoticeKind.LAUNCHED: _("Launched"),
        NoticeKind.STARTED: _("Started after its wait"),
        NoticeKind.FAILED: _("Failed"),
        NoticeKind.ENDED: _("Ended by the platform"),
        NoticeKind.ENDING: _("Ends soon"),
        NoticeKind.IDLE: _("Idle"),
        NoticeKind.APP_CLOSED: _("Public access has ended"),
    }
    return texts.get(NoticeKind(notice.kind), notice.kind)


def sentence(notice: SessionNotice) -> str:
    """Return why, in one sentence; empty when there is nothing to add."""
    session: ComputeSession = notice.session
    if notice.kind in (NoticeKind.FAILED, NoticeKind.ENDED):
        return in_words(session.reason_text)
    if notice.kind in (NoticeKind.IDLE, NoticeKind.APP_CLOSED):
        return in_words(notice.message)
    if notice.kind == NoticeKind.ENDING:
        usual = _("It has run for nearly as long as it may. Keep what you need elsewhere before.")
        return in_words(notice.message) or usual
    return ""


def tone(notice: SessionNotice) -> str:
    """Return the tone of a notice: bad, wait, or nothing."""
    return _TONES.get(NoticeKind(notice.kind), "")


def icon_of(notice: SessionNotice) -> str:
    """Return the name of the icon beside it."""
    return _ICONS.get(NoticeKind(notice.kind), "info-circle")
