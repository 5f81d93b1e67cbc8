"""The kinds of notifications, and users' choices of where they are shown: as a card, under the bell, by e-mail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import models, transaction

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.domain.activity.models import NoticeChoice
from backendai.domain.activity.services import audit


class NoticeKind(models.TextChoices):
    """The kinds of notifications about a session."""

    LAUNCHED = "launched", Message("launched")
    STARTED = "started", Message("started after a wait")
    FAILED = "failed", Message("failed")
    FINISHED = "finished", Message("finished successfully")
    ENDED = "ended", Message("ended by the platform")
    ENDING = "ending", Message("will end soon")
    IDLE = "idle", Message("idle, and will end soon")
    APP_CLOSED = "app-closed", Message("an app is not public any more")


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels in which notifications of one kind are shown."""

    card: bool = True
    bell: bool = True
    email: bool = False


CHANNELS = ("card", "bell", "email")
GIVEN = "given"  # access that somebody else gave; no notification of a session
# That a session is launched belongs to its start; that it is idle, or an app of it closes, to its end: one choice.
CHOSEN = (NoticeKind.STARTED, NoticeKind.FINISHED, NoticeKind.FAILED, NoticeKind.ENDED, NoticeKind.ENDING, GIVEN)


def choices_of(user: Any) -> dict[str, Channels]:
    """Return the user's choices for all kinds of notifications. One query."""
    rows = NoticeChoice.objects.filter(user=user)
    found = {row.kind: Channels(row.card, row.bell, row.email) for row in rows}
    chosen = {str(kind): found.get(kind, Channels()) for kind in CHOSEN}
    both = {NoticeKind.LAUNCHED: NoticeKind.STARTED, NoticeKind.IDLE: NoticeKind.ENDING}
    found = chosen | {str(kind): chosen[like] for kind, like in both.items()}
    # Nobody has to act on it, so it takes no room on the page.
    return found | {str(NoticeKind.APP_CLOSED): replace(chosen[NoticeKind.ENDING], card=False)}


def kinds_in(choices: Mapping[str, Channels], channel: str) -> list[str]:
    """Return the kinds that these choices show in this channel."""
    return [kind for kind, channels in choices.items() if getattr(channels, channel)]


def choose(user: Any, values: Mapping[str, Mapping[str, bool]]) -> dict[str, Channels]:
    """Save the user's choices for the given kinds and channels; returns all choices.

    Raises UserError for an unknown kind or channel, and for e-mail if the site sends none; then nothing is saved.
    """
    before = choices_of(user)
    after = {kind: _changed(kind, before.get(kind), channels) for kind, channels in values.items()}
    new = {kind: channels for kind, channels in after.items() if channels != before[kind]}
    with transaction.atomic():
        for kind, channels in new.items():
            told = {name: getattr(channels, name) for name in CHANNELS}
            NoticeChoice.objects.update_or_create(user=user, kind=kind, defaults=told)
        if new:
            changes = {kind: [_text(before[kind]), _text(channels)] for kind, channels in new.items()}
            audit(user.pk, "user.choose-notices", "user", [user.pk], changes=changes)
    return choices_of(user)


def mail_wanted() -> dict[str, set[UUID]]:
    """Return the ids of the users who want e-mail, by kind. One query."""
    wanted: dict[str, set[UUID]] = {}
    for kind, user_id in NoticeChoice.objects.filter(email=True).values_list("kind", "user_id"):
        wanted.setdefault(kind, set()).add(user_id)
    if NoticeKind.ENDING in wanted:
        wanted[str(NoticeKind.IDLE)] = wanted[NoticeKind.ENDING]
        wanted[str(NoticeKind.APP_CLOSED)] = wanted[NoticeKind.ENDING]
    return wanted


def sends_mail() -> bool:
    """Return whether the site has a mail server."""
    return bool(settings.EMAIL_URL)


def _changed(kind: str, before: Channels | None, values: Mapping[str, bool]) -> Channels:
    if before is None or kind not in CHOSEN:
        known = ", ".join(CHOSEN)
        raise UserError(
            "Unknown notification {kind}: choose one of {known}.",
            kind=repr(kind),
            known=known,
            field=kind[:32],
            code="unknown-kind",
        )
    for channel, value in values.items():
        if channel not in CHANNELS or not isinstance(value, bool):
            text = Message("{kind}: use true or false for {channels}.", kind=kind, channels=CHANNELS)
            raise UserError(text, field=kind, code="invalid-choice")
    if values.get("email") and not before.email and not sends_mail():
        raise UserError("This site sends no e-mail.", field=kind, code="no-mail-server")
    return Channels(**({name: getattr(before, name) for name in CHANNELS} | dict(values)))


def _text(channels: Channels) -> str:
    return ", ".join(name for name in CHANNELS if getattr(channels, name)) or "nowhere"
