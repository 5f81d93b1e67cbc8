"""Writes notification mails in the recipient's language."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.utils.translation import override

from backendai.base.core.messages import Message
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AccessNotice
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.compute.models import SessionNotice
from backendai.domain.compute.reasons import BY_ADMINISTRATOR
from backendai.domain.compute.services.notices.unknown_notifications import UnknownOn
from backendai.domain.pipelines.models import Run, State, Status
from backendai.domain.pipelines.presentation import counts_of
from backendai.domain.serving.models import EndpointNotice

_SAID = (NoticeKind.STARTING, NoticeKind.STARTED, NoticeKind.FINISHED)  # the subject says all


def _written(subject: str, *parts: str) -> tuple[str, str]:
    """Return the mail with these parts, and the page where one chooses what is mailed."""
    why = _("You asked for this mail; change your notifications at %(address)s")
    return subject, _paragraphs(*parts, why % {"address": f"{_portal()}/account/notifications/"})


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _portal() -> str:
    return settings.PORTAL_URL.rstrip("/")


def _language_of(user: User) -> override:
    return override(user.language or settings.LANGUAGE_CODE)


def mail_of(notice: SessionNotice) -> tuple[str, str]:
    """Return subject and text of a mail about a session, in the owner's language; in English if there is no
    translation."""
    with _language_of(notice.owner):
        subject, sentence = _words(notice)
        return _written(subject, sentence, _why(notice), f"{_portal()}/sessions/{notice.session_id}/")


def run_mail(run: Run) -> tuple[str, str]:
    """Return subject and text of a mail about a run that has ended, in its owner's language. One query."""
    with _language_of(run.owner):
        is_good = run.status == Status.SUCCEEDED
        subject = _("%(name)s has finished successfully") if is_good else _("%(name)s has failed")
        text = _("Your run %(name)s has finished successfully.") if is_good else _("Your run %(name)s has failed.")
        counts = counts_of([run])[run.pk]
        lines = [f"{in_words(Message(State(state).label))}: {number}" for state, number in counts.items() if number]
        address = f"{_portal()}/runs/{run.pk}/" + ("" if is_good else "failures/")
        return _written(subject % {"name": run.name}, text % {"name": run.name}, "\n".join(lines), address)


def endpoint_mail(notice: EndpointNotice) -> tuple[str, str]:
    """Return subject and text of a mail about an endpoint, in its owner's language."""
    kind = EndpointNotice.Kind
    with _language_of(notice.owner):
        subject = {
            kind.UNAVAILABLE: _("%(name)s: no replica answers"),
            kind.BACKING_OFF: _("%(name)s: replicas do not start"),
            kind.ROLLED_BACK: _("%(name)s: the update was rolled back"),
            kind.UNUSED: _("%(name)s gets no requests"),
        }[kind(notice.kind)] % {"name": notice.endpoint.name}
        address = f"{_portal()}/endpoints/{notice.endpoint_id}/"
        return _written(subject, f"{subject}.", in_words(notice.message), address)


def access_mail(notice: AccessNotice) -> tuple[str, str]:
    """Return subject and text of a mail about given access, in the person's language."""
    with _language_of(notice.owner):
        subject = _("%(name)s: you have access") % {"name": " ".join(notice.name.split())}
        return _written(subject, in_words(notice.message), f"{_portal()}/notifications/")


def unknown_mail(admin: User, agents: Sequence[UnknownOn]) -> tuple[str, str]:
    """Return subject and text of a mail about unknown kernels, in this superadmin's language."""
    with _language_of(admin):
        return _("Unknown kernels wait for a decision"), _paragraphs(
            _("Agents run kernels that the portal's database does not know, as after a restore from a backup."),
            "\n".join(f"{one.agent}: {one.number}" for one in agents),
            _("They keep running, and these agents take no new sessions until you adopt or remove them."),
            f"{_portal()}/manage/unknown-kernels/",
        )


def _words(notice: SessionNotice) -> tuple[str, str]:
    """Return the subject, and the first sentence."""
    ended = (_("%(name)s was ended by the platform"), _("Your session %(name)s was ended by the platform."))
    if notice.session.status_reason in BY_ADMINISTRATOR:
        ended = (_("%(name)s was ended by an administrator"), _("Your session %(name)s was ended by an administrator."))
    subject, sentence = {
        NoticeKind.STARTING: (
            _("%(name)s probably starts within 10 minutes"),
            _("Your session %(name)s probably starts within 10 minutes."),
        ),
        NoticeKind.STARTED: (_("%(name)s has started"), _("Your session %(name)s has started.")),
        NoticeKind.FINISHED: (
            _("%(name)s has finished successfully"),
            _("Your session %(name)s has finished successfully."),
        ),
        NoticeKind.FAILED: (_("%(name)s has failed"), _("Your session %(name)s has failed.")),
        NoticeKind.ENDED: ended,
        NoticeKind.ENDING: (_("%(name)s will end soon"), _("Your session %(name)s will end soon.")),
        NoticeKind.IDLE: (
            _("%(name)s is idle and will end soon"),
            _("Your session %(name)s is idle and will end soon."),
        ),
        NoticeKind.APP_CLOSED: (
            _("%(name)s: public access has ended"),
            _("Public access to an app of your session %(name)s has ended."),
        ),
    }[NoticeKind(notice.kind)]
    names = {"name": notice.session.name}
    return subject % names, sentence % names


def _why(notice: SessionNotice) -> str:
    if notice.kind in (NoticeKind.ENDING, NoticeKind.IDLE):
        when = _("At %(when)s UTC.") % {"when": f"{notice.due_at:%Y-%m-%d %H:%M}"} if notice.due_at else ""
        why = in_words(notice.message) or _("The session has nearly reached its time limit.")
        return f"{when} {why}".strip()
    if notice.kind == NoticeKind.APP_CLOSED:
        return in_words(notice.message)
    return "" if notice.kind in _SAID else in_words(notice.session.reason_text)
