"""Notifies people of what others gave them access to: a folder, an image, a template, a project or a role."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, Q, QuerySet

from backendai.base.core.messages import Message, shortened
from backendai.base.wire.browser import JobEvent, publish_on_commit
from backendai.domain.activity.models import AccessNotice, NoticeChoice
from backendai.domain.activity.notice_sources import KEPT_FOR, NoticeSource
from backendai.domain.activity.notices import GIVEN

NEW_FOR = timedelta(minutes=5)
EVENT = "access"
_MOST_AT_ONCE = 500
_ANEW = ("name", "message", "invitation", "created_at", "seen_at", "closed_at", "cleared_at", "mailed_at")


def notify_of_access(
    people: Iterable[Any], subject: tuple[str, Any], name: str, message: Message, *, now: datetime, invitation: int = 0
) -> None:
    """Notify these people of their new access to a subject, in the caller's transaction; replaces an earlier
    notification. ``people``: ids of users, without the person who gave it."""
    kind, pk = subject
    rows = [
        AccessNotice(
            owner_id=person,
            subject_type=kind,
            subject_id=str(pk),
            name=name[:255],
            message=shortened(message),
            invitation=invitation or None,
            created_at=now,
        )
        for person in dict.fromkeys(people)
    ]
    AccessNotice.objects.bulk_create(
        rows,
        batch_size=_MOST_AT_ONCE,
        update_conflicts=True,
        unique_fields=["owner", "subject_type", "subject_id"],
        update_fields=_ANEW,
    )
    publish_on_commit(JobEvent(f"{EVENT} {row.owner_id}", str(row.owner_id), EVENT, "DONE") for row in rows)


def answer_access(person: Any, invitation: int, *, now: datetime) -> None:
    """Note that the person accepted the invitation: its notification is read and needs no answer."""
    waiting = AccessNotice.objects.filter(owner=person, invitation=invitation)
    waiting.update(invitation=None, seen_at=now, closed_at=now)


def withdraw_access(subject: tuple[str, Any], people: Iterable[Any] | None = None) -> None:
    """Delete the notifications of access that these people, or all, have no longer."""
    kind, pk = subject
    found = AccessNotice.objects.filter(subject_type=kind, subject_id=str(pk))
    (found if people is None else found.filter(owner__in=people)).delete()


class AccessNotices(NoticeSource):
    """Notifications of given access. Those that wait for an answer are not dismissed."""

    def of_kinds(self, kinds: Collection[str]) -> Q:
        return Q() if GIVEN in kinds else Q(pk__in=[])

    def clear(self, user: Any, *, now: datetime) -> int:
        return self.own(user, now=now).filter(invitation=None).update(cleared_at=now, seen_at=now)


ACCESS = AccessNotices(AccessNotice, {GIVEN: GIVEN})


def access_cards_of(person: Any, *, now: datetime) -> QuerySet[AccessNotice]:
    """Return those shown as cards, if the person wants cards: new ones, and those that wait for an answer."""
    is_due = Q(created_at__gt=now - NEW_FOR) | Q(invitation__isnull=False)
    unwanted = NoticeChoice.objects.filter(user=person, kind=GIVEN, card=False)
    return ACCESS.own(person, now=now).filter(is_due, ~Exists(unwanted), closed_at=None)


def delete_old_access_notices(now: datetime) -> int:
    """Delete notifications that are too old, at most ``_MOST_AT_ONCE`` per call; returns how many."""
    old = AccessNotice.objects.filter(created_at__lt=now - KEPT_FOR).order_by("created_at")
    number: int = AccessNotice.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])).delete()[0]
    return number
