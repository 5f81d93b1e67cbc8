"""The cards at the lower edge of every page: one for each session that is starting or has a notification."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from backendai.domain.accounts.models import User
from backendai.domain.activity.notices import NoticeKind, choices_of, kinds_in
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.domain.compute.status import LIVE, Status

MOST_SHOWN = 3
_MOST_READ = 100
_STAYS = timedelta(hours=24)
_CHANGED_LATELY = timedelta(minutes=5)
_STAYS_RUNNING = timedelta(minutes=2)
_STAYS_ENDED = timedelta(seconds=15)  # long enough to be seen and to close itself
_LASTING = (NoticeKind.FAILED, NoticeKind.ENDED)
_WARNINGS = (NoticeKind.IDLE, NoticeKind.ENDING)
_NUMBER = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True)
class Card:
    """A session with its newest notification that the owner has not closed."""

    session: ComputeSession
    notice: SessionNotice

    @property
    def says_why(self) -> bool:
        """Whether the card stays until the user closes it, as it shows an error."""
        return self.notice.kind in _LASTING

    @property
    def closes_itself(self) -> bool:
        """Whether the card closes by itself: the session has ended without an error."""
        return self.session.is_terminal and not self.says_why

    @property
    def may_end(self) -> bool:
        """Whether the session can still be terminated."""
        return self.session.status in LIVE and self.session.status != Status.TERMINATING

    @property
    def may_keep(self) -> bool:
        """Whether the card shows an idle warning of a running session."""
        return self.notice.kind == NoticeKind.IDLE and self.session.is_running

    @property
    def since(self) -> datetime:
        """The time of the last change of the session or its notification."""
        return max(self.notice.created_at, self.session.changed_at)


@dataclass(frozen=True, slots=True)
class Pile:
    """Cards of one launch with the same text, shown as one; the newest first."""

    cards: list[Card]

    @property
    def first(self) -> Card:
        """The newest card."""
        return self.cards[0]

    @property
    def name(self) -> str:
        """The common part of the sessions' names: ``many`` of ``many-1`` to ``many-16``."""
        stems = {_NUMBER.sub("", card.session.name) for card in self.cards}
        return stems.pop() if len(stems) == 1 and len(self.cards) > 1 else self.first.session.name

    @property
    def since(self) -> datetime:
        """The time of the last change of any of its cards."""
        return max(card.since for card in self.cards)

    @property
    def closes_itself(self) -> bool:
        """Whether all its cards close by themselves."""
        return all(card.closes_itself for card in self.cards)


def piles_of(cards: Sequence[Card]) -> list[Pile]:
    """Return the cards grouped by launch and text, in the order of their newest cards."""
    found: dict[Any, Pile] = {}
    for card in cards:
        session = card.session
        why = session.status_reason if card.says_why else ""
        key = (session.launch_id or session.pk, card.notice.kind, session.status, why)
        found.setdefault(key, Pile([])).cards.append(card)
    return list(found.values())


def cards_of(user: User, *, now: datetime) -> list[Card]:
    """Return the user's open cards, the newest first; two queries."""
    kinds = kinds_in(choices_of(user), "card")
    notices = SESSIONS.shown(user, kinds, now=now).filter(closed_at=None, created_at__gt=now - _STAYS)
    newest: dict[object, SessionNotice] = {}
    for notice in notices.order_by("-pk")[:_MOST_READ]:
        newest.setdefault(notice.session_id, notice)
    return [Card(notice.session, notice) for notice in newest.values() if _is_due(notice, now)]


def _is_due(notice: SessionNotice, now: datetime) -> bool:
    """Return whether the card is shown.

    Shown are warnings, which want an answer, and what changed in the last minutes: errors, sessions that are starting
    or have just started, and those that have just ended.
    """
    session = notice.session
    if notice.kind in _LASTING:
        return notice.created_at > now - _CHANGED_LATELY
    if session.is_terminal:
        return session.ended_at is not None and session.ended_at > now - _STAYS_ENDED
    if notice.kind in _WARNINGS:
        return True
    if session.status == Status.RUNNING:
        return session.started_at is not None and session.started_at > now - _STAYS_RUNNING
    return max(notice.created_at, session.changed_at) > now - _CHANGED_LATELY
