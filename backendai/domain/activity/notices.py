"""The kinds of notifications, and users' choices of where they are shown: as a card, under the bell, by e-mail."""

from __future__ import annotations

from collections.abc import Mapping
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
    STARTING = "starting", Message("will probably start soon")
    STARTED = "started", Message("started after a wait")
    FAILED = "failed", Message("failed")
    FINISHED = "finished", Message("finished successfully")
    ENDED = "ended", Message("ended by the platform")
    ENDING = "ending", Message("will end soon")
    IDLE = "idle", Message("idle, and will end soon")
    APP_CLOSED = "app-closed", Message("an app is not public any more")


class Channel:
    """Where notifications are shown. Its name is its column in ``NoticeChoice``."""

    name: str
    title: Message
    help: str
    is_usual = True

    def why_not(self) -> Message:
        """Return why the site does not offer it; empty if it does."""
        return Message()


class Card(Channel):
    name, title, help = "card", Message("Card on the page"), "A card on the current page."


class Bell(Channel):
    name, title, help = "bell", Message("Under the bell"), "An entry under the bell."


class Email(Channel):
    name, title, help = "email", Message("E-mail"), "An e-mail, if the site sends any."
    is_usual = False

    def why_not(self) -> Message:
        return Message() if sends_mail() else Message("This site sends no e-mail.", code="no-mail-server")


CHANNELS: dict[str, Channel] = {channel.name: channel for channel in (Card(), Bell(), Email())}
Choice = Mapping[str, bool]  # by channel
_USUAL: Choice = {name: channel.is_usual for name, channel in CHANNELS.items()}
GIVEN = "given"  # access that somebody else gave; no notification of a session
# That a session is launched, or will start soon, belongs to its start; that it is idle, or an app of it closes, to its
# end: one choice.
_BEFORE = (NoticeKind.LAUNCHED, NoticeKind.STARTING)
CHOSEN = (NoticeKind.STARTED, NoticeKind.FINISHED, NoticeKind.FAILED, NoticeKind.ENDED, NoticeKind.ENDING, GIVEN)


def choices_of(user: Any) -> dict[str, Choice]:
    """Return the user's choices for all kinds of notifications. One query."""
    rows = NoticeChoice.objects.filter(user=user)
    found: dict[str, Choice] = {row.kind: {name: getattr(row, name) for name in CHANNELS} for row in rows}
    chosen = {str(kind): found.get(kind, _USUAL) for kind in CHOSEN}
    both = {kind: NoticeKind.STARTED for kind in _BEFORE} | {NoticeKind.IDLE: NoticeKind.ENDING}
    found = chosen | {str(kind): chosen[like] for kind, like in both.items()}
    # Nobody has to act on it, so it takes no room on the page.
    return found | {str(NoticeKind.APP_CLOSED): {**chosen[NoticeKind.ENDING], "card": False}}


def kinds_in(choices: Mapping[str, Choice], channel: str) -> list[str]:
    """Return the kinds that these choices show in this channel."""
    return [kind for kind, channels in choices.items() if channels[channel]]


def choose(user: Any, values: Mapping[str, Choice]) -> dict[str, Choice]:
    """Save the user's choices for the given kinds and channels; returns all choices.

    Raises UserError for an unknown kind or channel, and for one that the site does not offer; then nothing is saved.
    """
    before = choices_of(user)
    after = {kind: _changed(kind, before.get(kind), channels) for kind, channels in values.items()}
    new = {kind: channels for kind, channels in after.items() if channels != before[kind]}
    with transaction.atomic():
        for kind, channels in new.items():
            NoticeChoice.objects.update_or_create(user=user, kind=kind, defaults=channels)
        if new:
            changes = {kind: [_text(before[kind]), _text(channels)] for kind, channels in new.items()}
            audit(user.pk, "user.choose-notices", "user", [user.pk], changes=changes)
    return choices_of(user)


def mail_wanted() -> dict[str, set[UUID]]:
    """Return the ids of the users who want e-mail, by kind. One query."""
    wanted: dict[str, set[UUID]] = {}
    for kind, user_id in NoticeChoice.objects.filter(email=True).values_list("kind", "user_id"):
        wanted.setdefault(kind, set()).add(user_id)
    if NoticeKind.STARTED in wanted:
        wanted[str(NoticeKind.STARTING)] = wanted[NoticeKind.STARTED]
    if NoticeKind.ENDING in wanted:
        wanted[str(NoticeKind.IDLE)] = wanted[NoticeKind.ENDING]
        wanted[str(NoticeKind.APP_CLOSED)] = wanted[NoticeKind.ENDING]
    return wanted


def sends_mail() -> bool:
    """Return whether the site has a mail server."""
    return bool(settings.EMAIL_URL)


def _changed(kind: str, before: Choice | None, values: Choice) -> Choice:
    if before is None or kind not in CHOSEN:
        known = ", ".join(CHOSEN)
        raise UserError(
            "Unknown notification {kind}: choose one of {known}.",
            kind=repr(kind),
            known=known,
            field=kind[:32],
            code="unknown-kind",
        )
    for name, value in values.items():
        if name not in CHANNELS or not isinstance(value, bool):
            text = Message("{kind}: use true or false for {channels}.", kind=kind, channels=tuple(CHANNELS))
            raise UserError(text, field=kind, code="invalid-choice")
        if value and not before[name] and (refusal := CHANNELS[name].why_not()):
            raise UserError(refusal, field=kind, code=refusal.stable_code)
    return {**before, **values}


def _text(channels: Choice) -> str:
    return ", ".join(name for name in CHANNELS if channels[name]) or "nowhere"
