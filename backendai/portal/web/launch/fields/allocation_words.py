"""Texts about one amount of the launch form: its bounds, their sources, and the errors of a typed value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.utils.translation import gettext_noop as _noop

from backendai.base.core.errors import UserError
from backendai.base.core.slots import INFINITY, MILLI, decimal_text, format_amount, is_size, parse_amount
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.policies.applicable import DOMAIN, KEY_PAIR, PROJECT, USER
from backendai.domain.cluster.slot_types import look_of, shown_amount
from backendai.domain.planning.amounts.bounds import AGENT, IMAGE, SITE, Amount, Bound

_MIB = 2**20 * MILLI
_MOST_PLACES = 256  # of a slider: on a phone there is about one pixel for each
_LARGEST = _noop("the largest agent of %(name)s")
_WHOSE = {
    IMAGE: _noop("the image %(name)s"),
    SITE: _noop("this site"),
    AGENT: _noop("agent %(name)s"),
    KEY_PAIR: _noop("key pair %(name)s"),
    USER: _noop("user %(name)s"),
    PROJECT: _noop("project %(name)s"),
    DOMAIN: _noop("domain %(name)s"),
}
_UNREADABLE = "unreadable"
_USUAL_END = {"cpu": 16 * MILLI, "mem": 64 * 1024 * _MIB}


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about an amount.

    ``when``: the state in which it is shown: unreadable, below, above, step (between two steps) or queue (more than is
    free now).
    """

    when: str
    text: str
    is_said: bool

    @property
    def tone(self) -> str:
        """The tone of the sentence's colour: ``wait`` if the session has to wait, else ``bad``."""
        return "wait" if self.when == "queue" else "bad"


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of one amount.

    ``value``: the typed amount in thousandths (None: unreadable). ``tells_room``: whether the user may know the group's
    free resources.
    """

    amount: Amount
    group: str
    kernels: int
    tells_room: bool
    value: int | None = None

    @property
    def minimum(self) -> str:
        """The smallest allowed amount as text."""
        return self.text(self.amount.minimum.amount)

    @property
    def maximum(self) -> str:
        """The largest allowed amount as text."""
        return self.text(self.amount.maximum.amount) if self.amount.maximum else INFINITY

    @property
    def whose(self) -> str:
        """The source of the largest amount; empty without a limit."""
        return self._whose(self.amount.maximum) if self.amount.maximum else ""

    @property
    def remaining_amount(self) -> int | None:
        """The amount that could start now, as far as the user may know; None: unlimited."""
        if self.tells_room:
            return self.amount.remaining
        bounds = [bound.amount for bound in (self.amount.quota, self.amount.maximum) if bound]
        return min(bounds) if self.amount.quota else None

    @property
    def remaining(self) -> str:
        """The amount that could start now, as text."""
        return INFINITY if self.remaining_amount is None else self.text(self.remaining_amount)

    @property
    def is_limited(self) -> bool:
        """Whether a policy's limit, and not the machines, sets the amount that could start now."""
        return self.amount.quota is not None and (self.amount.is_limited or not self.tells_room)

    @property
    def left(self) -> str:
        """What a limit leaves, and whose it is; empty if the machines leave less, or nothing of it is used."""
        quota, most = self.amount.quota, self.amount.maximum
        if quota is None or self.kernels > 1 or not self.is_limited or (most and quota.amount >= most.amount):
            return ""
        return _("%(amount)s left of the limit of %(whose)s") % {"amount": self.remaining, "whose": self._whose(quota)}

    @property
    def room(self) -> str:
        """The free resources of the group and of its best agent as text; empty if the user may not know them."""
        if not self.tells_room:
            return ""
        free, on_one = self.text(self.amount.free), self.text(self.amount.on_one)
        if self.amount.free == self.amount.on_one:
            return _("%(free)s free in %(group)s") % {"free": free, "group": self.group}
        values = {"free": free, "group": self.group, "on_one": on_one}
        return _("%(free)s free in %(group)s, %(on_one)s on one agent") % values

    @property
    def notes(self) -> list[Note]:
        """All sentences that the page may need; the one for the current ``value`` is marked."""
        said = _UNREADABLE if self.value is None else self.objection(self.value)
        return [Note(when, text, when == said) for when, tell in self._tellers.items() if (text := tell())]

    @property
    def numbers(self) -> dict[str, str]:
        """The bounds in the slot's unit for the page's script; a missing bound is empty."""
        most, now = self.amount.maximum, self.remaining_amount
        return {
            "minimum": decimal_text(self.amount.minimum.amount),
            "maximum": decimal_text(most.amount) if most else "",
            "remaining": "" if now is None else decimal_text(now),
            "step": decimal_text(self.amount.step),
            "end": decimal_text(self.end),
            "slide": decimal_text(slide_of(self.amount, self.end)),
        }

    @property
    def end(self) -> int:
        """The right end of the slider: the largest amount, or a generous value without a limit."""
        if self.amount.maximum:
            return max(self.amount.maximum.amount, self.amount.step)
        return max(_USUAL_END.get(self.amount.slot, 8 * MILLI), 4 * self.amount.minimum.amount, self.value or 0)

    def objection(self, value: int) -> str:
        """Return the problem of an amount: below, above, step, queue (it only has to wait), or empty."""
        amount, now = self.amount, self.remaining_amount
        if value < amount.minimum.amount:
            return "below"
        if amount.maximum and value > amount.maximum.amount:
            return "above"
        if value % amount.step:
            return "step"
        return "queue" if now is not None and value > now else ""

    def said_of(self, value: int) -> Note | None:
        """Return the sentence about this amount, or None if there is no problem."""
        said = self.objection(value)
        text = self._tellers[said]() if said else ""
        return Note(said, text, is_said=True) if text else None

    def value_of(self, text: str) -> int | None:
        """Return the typed amount in thousandths, 0 for an empty text; None if it cannot be parsed."""
        try:
            return parse_amount(self.amount.slot, text, field=self.amount.slot) if text else 0
        except UserError:
            return None

    def text(self, amount: int) -> str:
        """Return an amount of this slot as text."""
        return shown_amount(self.amount.slot, amount)

    @property
    def _tellers(self) -> dict[str, Callable[[], str]]:
        known = {"below": self._below, "above": self._above, "step": self._step, "queue": self._queue}
        return {_UNREADABLE: self._unreadable, **known}

    def _unreadable(self) -> str:
        if is_size(self.amount.slot):
            return _("Write a number, such as 4, or a size, such as 512m.")
        if self.amount.step == MILLI:
            return _("Write a whole number, such as 2.")
        return _("Write a number, such as 2 or 0.5.")

    def _below(self) -> str:
        if not self.amount.is_required:
            return ""
        values = {"amount": self.minimum, "name": self.amount.minimum.name}
        return _("At least %(amount)s: the image %(name)s needs it.") % values

    def _above(self) -> str:
        if not self.amount.maximum:
            return ""
        values = {"amount": self.maximum, "whose": self.whose, "kernels": self.kernels}
        if self.kernels > 1:
            return _("At most %(amount)s for each of %(kernels)s kernels: that is the limit of %(whose)s.") % values
        return _("At most %(amount)s: that is the limit of %(whose)s.") % values

    def _step(self) -> str:
        if is_size(self.amount.slot):
            return _("Whole bytes only.")
        if self.amount.step == MILLI:
            return _("Whole numbers only.")
        return _("Must be a multiple of %(step)s.") % {"step": decimal_text(self.amount.step)}

    def _queue(self) -> str:
        quota, values = self.amount.quota, {"amount": self.remaining, "group": self.group, "kernels": self.kernels}
        if self.remaining_amount is None:
            return ""
        if self.kernels > 1:
            text = _("More than the %(amount)s that each of %(kernels)s kernels can have: the session will be queued.")
        elif quota and self.is_limited:
            values["whose"] = self._whose(quota)
            text = _("More than the %(amount)s that %(whose)s has left: the session will be queued.")
        elif self.amount.free > self.amount.on_one:
            text = _("More than the %(amount)s available on one agent now: the session will be queued.")
        else:
            text = _("More than the %(amount)s free in %(group)s now: the session will be queued.")
        return text % values

    def _whose(self, bound: Bound) -> str:
        return whose(bound, self.group)


def whose(bound: Bound, group: str) -> str:
    """Return the source of a limit as text."""
    text = _LARGEST if bound.kind == AGENT and bound.name == group else _WHOSE[bound.kind]
    return _(text) % {"name": bound.name}


def slide_of(amount: Amount, end: int) -> int:
    """Return the size of one slider step: a usual step, with a limited number of steps."""
    if is_size(amount.slot):
        slide = 64 * _MIB
    elif amount.step >= MILLI:
        slide = amount.step
    else:
        slide = next((each for least, each in ((4, MILLI), (2, 500)) if end >= least * MILLI), 100)
        slide = -(-slide // amount.step) * amount.step
    while end > slide * _MOST_PLACES:
        slide *= 2
    return slide


def plain(slot: str, amount: int) -> str:
    """Return an amount as a size or a bare number, without the name of its slot."""
    return format_amount(slot, amount) if is_size(slot) else decimal_text(amount)


def name_of(slot: str) -> str:
    """Return the display name of a slot."""
    return look_of(slot).display_name
