"""Notifies superadmins of unknown kernels: by one mail, and under the bell until an administrator has decided."""

from __future__ import annotations

import smtplib
from datetime import datetime
from typing import NamedTuple

from django.core.mail import EmailMessage, get_connection
from django.db.models import Count, Max, QuerySet

from backendai.domain.accounts.models import User
from backendai.domain.activity.notice_sources import TRIED_FOR, Clock, Writer
from backendai.domain.activity.notices import sends_mail
from backendai.domain.compute.models import UnknownKernel

_MOST_AT_ONCE = 1000


class UnknownOn(NamedTuple):
    """An agent, the number of its unknown kernels that nobody has decided to remove, and when the newest was found."""

    agent: str
    number: int
    found_at: datetime


def undecided_by_agent(user: User) -> list[UnknownOn]:
    """Return the undecided unknown kernels by agent. One query for superadmins; empty, without a query, for other
    users."""
    return _by_agent(_undecided()) if user.is_superadmin else []


class UnknownKernels:
    """The mails about unknown kernels: as those of a ``NoticeSource``, but to all superadmins."""

    def has_mails(self, now: datetime) -> bool:
        """Return whether mails wait to be sent. One query; none if the site sends no mail."""
        return _due(now).exists() if sends_mail() else False

    def send_mails(self, clock: Clock, write: Writer) -> int:
        """Mail all superadmins about new unknown kernels, at most ``_MOST_AT_ONCE``; returns how many mails were sent.

        Each superadmin gets one mail, even with several processes. If the first mail fails, all are retried for an
        hour. No transaction may be open.
        """
        due = list(_due(clock()).values_list("pk", flat=True)[:_MOST_AT_ONCE])
        rows = UnknownKernel.objects.filter(pk__in=due)
        if not due or not rows.filter(mailed_at=None).update(mailed_at=clock()):
            return 0
        news, sent = _by_agent(rows), 0
        admins = User.objects.filter(role=User.Role.SUPERADMIN, is_active=True).order_by("pk")
        try:
            with get_connection() as connection:
                for admin in admins:
                    EmailMessage(*write(admin, news), None, [admin.email], connection=connection).send()
                    sent += 1
        except (OSError, smtplib.SMTPException):
            if not sent:  # after the first mail a retry would send mails twice
                rows.update(mailed_at=None)
            raise
        return sent


UNKNOWN = UnknownKernels()


def _undecided() -> QuerySet[UnknownKernel]:
    return UnknownKernel.objects.filter(removal_at=None)


def _due(now: datetime) -> QuerySet[UnknownKernel]:
    return _undecided().filter(mailed_at=None, found_at__gt=now - TRIED_FOR).order_by("pk")


def _by_agent(rows: QuerySet[UnknownKernel]) -> list[UnknownOn]:
    counted = rows.order_by("agent__name").values_list("agent__name").annotate(Count("pk"), Max("found_at"))
    return [UnknownOn(*row) for row in counted]
