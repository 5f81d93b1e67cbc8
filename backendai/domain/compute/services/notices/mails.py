"""Sends notifications of sessions, and of given access, by e-mail to users who have chosen this."""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.core.mail import EmailMessage, get_connection
from django.db.models import Q

from backendai.domain.activity.access_notices import access_mails_due
from backendai.domain.activity.models import AccessNotice
from backendai.domain.activity.notices import NoticeKind, mail_wanted, sends_mail
from backendai.domain.compute.models import NoticeQuerySet, SessionNotice

logger = logging.getLogger(__name__)

TRIED_FOR = timedelta(hours=1)  # older notifications are only under the bell
MOST_AT_ONCE = 50
_TOLD = (
    NoticeKind.STARTED,
    NoticeKind.FINISHED,
    NoticeKind.FAILED,
    NoticeKind.ENDED,
    NoticeKind.ENDING,
    NoticeKind.IDLE,
    NoticeKind.APP_CLOSED,
)
Mailed = TypeVar("Mailed", bound=Any)  # a model with ``owner`` and ``mailed_at``
Writer = Callable[[SessionNotice], tuple[str, str]]  # the subject and the text of a mail


def has_mails(now: datetime) -> bool:
    """Return whether mails wait to be sent. Two queries; none if the site sends no mail."""
    return _due(now).exists() if sends_mail() else False


def send_mails(clock: Callable[[], datetime], write: Writer) -> int:
    """Send waiting mails with the texts of ``write``, at most ``MOST_AT_ONCE`` per call; returns how many. Raises the
    errors of ``mail_each``."""
    return mail_each(_due(clock()).select_related("session", "owner").order_by("pk")[:MOST_AT_ONCE], clock, write)


def has_access_mails(now: datetime) -> bool:
    """Return whether mails about given access wait to be sent. Two queries; none if the site sends no mail."""
    return access_mails_due(now).exists() if sends_mail() else False


def send_access_mails(clock: Callable[[], datetime], write: Callable[[AccessNotice], tuple[str, str]]) -> int:
    """Send waiting mails about given access; returns how many. Raises the errors of ``mail_each``."""
    return mail_each(access_mails_due(clock()).select_related("owner").order_by("pk")[:MOST_AT_ONCE], clock, write)


def mail_each(due: Iterable[Mailed], clock: Callable[[], datetime], write: Callable[[Mailed], tuple[str, str]]) -> int:
    """Send a mail about each row to its owner; returns how many. Each mail is sent once, even with several processes.

    A failed mail is retried for an hour, and its error is raised. Waits for the mail server, so no transaction may be
    open.
    """
    sent, refused = 0, None
    with get_connection() as connection:
        for one in list(due):
            row = type(one)._default_manager.filter(pk=one.pk)
            if not row.filter(mailed_at=None).update(mailed_at=clock()):
                continue
            try:
                EmailMessage(*write(one), None, [one.owner.email], connection=connection).send()
            except smtplib.SMTPRecipientsRefused as error:  # only this recipient is affected; others get their mail
                row.update(mailed_at=None)
                refused = error
                continue
            except (OSError, smtplib.SMTPException):
                row.update(mailed_at=None)
                raise
            sent += 1
    if refused is not None:
        raise refused
    return sent


def _due(now: datetime) -> NoticeQuerySet:
    asked = Q(pk__in=[])
    for kind, users in mail_wanted().items():
        asked |= Q(kind=kind, owner__in=users)
    recent = SessionNotice.objects.filter(asked, mailed_at=None, created_at__gt=now - TRIED_FOR)
    found: NoticeQuerySet = recent.filter(owner__is_active=True, kind__in=_TOLD)
    return found
