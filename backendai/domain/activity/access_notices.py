"""Notifies people of what others gave them access to: a folder, an image, a template, a project or a role."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, Q, QuerySet

from backendai.base.core.messages import Message, shortened
from backendai.base.wire.browser import JobEvent, publish_on_commit
from backendai.domain.activity.models import AccessNotice, NoticeChoice
from backendai.domain.activity.notices import GIVEN, mail_wanted

KEPT_FOR, NEW_FOR, MAILED_WITHIN = timedelta(days=30), timedelta(minutes=5), timedelta(hours=1)
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


def access_notices_of(person: Any, *, now: datetime) -> QuerySet[AccessNotice]:
    """Return the person's notifications of given access that are not dismissed, the newest first."""
    return AccessNotice.objects.filter(owner=person, cleared_at=None, created_at__gt=now - KEPT_FOR)


def access_cards_of(person: Any, *, now: datetime) -> QuerySet[AccessNotice]:
    """Return those shown as cards, if the person wants cards: new ones, and those that wait for an answer."""
    is_due = Q(created_at__gt=now - NEW_FOR) | Q(invitation__isnull=False)
    unwanted = NoticeChoice.objects.filter(user=person, kind=GIVEN, card=False)
    return access_notices_of(person, now=now).filter(is_due, ~Exists(unwanted), closed_at=None)


def access_mails_due(now: datetime) -> QuerySet[AccessNotice]:
    """Return those to be mailed. One query for the people who want mail."""
    waiting = AccessNotice.objects.filter(mailed_at=None, created_at__gt=now - MAILED_WITHIN, owner__is_active=True)
    return waiting.filter(owner__in=mail_wanted().get(GIVEN, ()))


def see_access(person: Any, *, now: datetime) -> None:
    """Mark the person's notifications of given access as seen."""
    access_notices_of(person, now=now).filter(seen_at=None).update(seen_at=now)


def clear_access(person: Any, *, now: datetime) -> int:
    """Dismiss those that wait for no answer; returns how many."""
    return access_notices_of(person, now=now).filter(invitation=None).update(cleared_at=now, seen_at=now)


def close_access_cards(person: Any, *, now: datetime, pk: int | None = None) -> int:
    """Close the card of one notification, or all cards of given access; returns how many."""
    waiting = AccessNotice.objects.filter(owner=person, closed_at=None)
    return (waiting if pk is None else waiting.filter(pk=pk)).update(closed_at=now)


def delete_old_access_notices(now: datetime) -> int:
    """Delete notifications that are too old, at most ``_MOST_AT_ONCE`` per call; returns how many."""
    old = AccessNotice.objects.filter(created_at__lt=now - KEPT_FOR).order_by("created_at")
    number: int = AccessNotice.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])).delete()[0]
    return number
