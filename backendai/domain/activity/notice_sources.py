"""Where notifications come from: those of a person, which the person sees and dismisses, and those to be mailed."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.mail import EmailMessage, get_connection
from django.db.models import Q, QuerySet

from backendai.domain.activity.notices import mail_wanted, sends_mail

KEPT_FOR = timedelta(days=30)
TRIED_FOR = timedelta(hours=1)  # older notifications are not mailed any more
MOST_AT_ONCE = 50
Clock = Callable[[], datetime]
Writer = Callable[..., tuple[str, str]]  # the subject and the text of a mail


@dataclass(frozen=True)
class NoticeSource:
    """A table of notifications, with the columns ``owner``, ``seen_at``, ``cleared_at`` and ``mailed_at``.

    ``kinds``: by the value of ``column``, the kind for which people choose channels; other rows are no notifications.
    ``at``: the column of their time. ``related`` and ``deferred``: columns that are read with the rows, or are not.
    """

    model: Any
    kinds: Mapping[str, str]
    column: str = "kind"
    at: str = "created_at"
    related: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()

    def of_kinds(self, kinds: Collection[str]) -> Q:
        """Return the condition of notifications of these kinds."""
        return Q(**{f"{self.column}__in": [value for value, kind in self.kinds.items() if kind in kinds]})

    def own(self, user: Any, *, now: datetime) -> QuerySet[Any]:
        """Return the user's notifications that are not dismissed. Administrators, too, get only their own."""
        is_new = Q(**{f"{self.at}__gt": now - KEPT_FOR})
        return self.model.objects.filter(is_new, self.of_kinds(self.kinds.values()), owner=user, cleared_at=None)

    def shown(self, user: Any, kinds: Collection[str], *, now: datetime) -> QuerySet[Any]:
        """Return those of these kinds."""
        found = self.own(user, now=now).filter(self.of_kinds(kinds))
        return found.select_related(*self.related or (None,)).defer(*self.deferred)

    def see(self, user: Any, *, now: datetime) -> None:
        """Mark the user's notifications as seen."""
        self.own(user, now=now).filter(seen_at=None).update(seen_at=now)

    def clear(self, user: Any, *, now: datetime) -> int:
        """Dismiss the user's notifications; returns how many."""
        return self.own(user, now=now).update(cleared_at=now, seen_at=now)

    def close(self, user: Any, *, now: datetime, **which: Any) -> int:
        """Close the user's cards of these notifications until the next one; returns how many."""
        return self.model.objects.filter(owner=user, closed_at=None, **which).update(closed_at=now)

    def due(self, now: datetime) -> QuerySet[Any]:
        """Return the notifications to be mailed. One query for the people who want mail."""
        wanted = Q(pk__in=[])
        for kind, users in mail_wanted().items():
            wanted |= self.of_kinds([kind]) & Q(owner__in=users)
        is_new = Q(**{f"{self.at}__gt": now - TRIED_FOR})
        return self.model.objects.filter(is_new, wanted, mailed_at=None, owner__is_active=True)

    def has_mails(self, now: datetime) -> bool:
        """Return whether mails wait to be sent. Two queries; none if the site sends no mail."""
        return self.due(now).exists() if sends_mail() else False

    def send_mails(self, clock: Clock, write: Writer) -> int:
        """Send waiting mails with the texts of ``write``, at most ``MOST_AT_ONCE``; returns how many. Each mail is sent
        once, even with several processes.

        A failed mail is retried for an hour, and its error is raised. Waits for the mail server, so no transaction may
        be open.
        """
        sent, refused = 0, None
        due = self.due(clock()).select_related("owner", *self.related).defer(*self.deferred).order_by(self.at, "pk")
        with get_connection() as connection:
            for one in list(due[:MOST_AT_ONCE]):
                row = self.model.objects.filter(pk=one.pk)
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
