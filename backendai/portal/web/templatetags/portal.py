"""Template tags for icons, statuses, times, amounts and form fields."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django import template
from django.conf import settings
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple, RadioSelect, Select
from django.template import Context
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeData, SafeString, mark_safe

from backendai.base.core.slots import Slots, decimal_text, format_size, is_size, limit_text
from backendai.base.texts.isolation import isolated
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.domain.accounts.sign_in.second_factors import is_missing
from backendai.domain.cluster.slot_types import in_order
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.status.steps import Step
from backendai.domain.planning.steps import shown_steps
from backendai.portal.web.dashboard.resources import name_of_slot
from backendai.portal.web.frame import jobs
from backendai.portal.web.frame.bundles import SCRIPTS, STYLES, addresses_of
from backendai.portal.web.frame.kind_words import word_of
from backendai.portal.web.frame.statuses import appearance_of, exit_words
from backendai.portal.web.frame.step_names import name_of_step
from backendai.portal.web.frame.time_words import clock, relative, time_words
from backendai.portal.web.session.reasons.advice import try_text
from backendai.portal.web.session.reasons.history import what_happened

register = template.Library()
register.filter("job_title", jobs.title_of)
register.filter("job_percent", jobs.percent_of)
register.filter("job_counted", jobs.counted)

register.simple_tag(time_words)
register.filter("in_words", in_words)
register.filter("what_happened", what_happened)
register.filter("step_name", name_of_step)

_MOMENT = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}(?::[0-9]{2})?) UTC\b")
_NBSP = "\N{NO-BREAK SPACE}"


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return the icon's SVG. It is decorative, as the text beside it has the meaning."""
    return _svg(name)


@register.simple_tag(takes_context=True)
def is_locked(context: Context) -> bool:
    """Return whether the user can only set up a required second factor."""
    request = context.get("request")
    user = getattr(request, "user", None)
    return isinstance(user, User) and request is not None and is_missing(user, request.session)


@register.simple_tag
def is_demo() -> bool:
    """Return whether this is a demonstration."""
    return bool(settings.DEMO)


@register.filter
def fullness(percent: float) -> str:
    """Return the class of a meter: coloured from 85 per cent on, and otherwise at 100."""
    return "is-full" if percent >= 100 else "is-high" if percent >= 85 else ""


@register.simple_tag
def status(value: str) -> SafeString:
    """Return a session's or kernel's status as a coloured word.

    Built without a template, as a list has hundreds of them.
    """
    look = appearance_of(value)
    moving = " status-moving" if look.is_moving else ""
    return format_html('<span class="status tone-{}{}">{}</span>', look.tone, moving, look.word)


@register.filter
def kind_word(name: str) -> str | Promise:
    """Return the name of a type of sessions inside a sentence."""
    return word_of(name)


@register.filter(is_safe=True)
def kept_apart(value: object) -> str:
    """Return a person's text with its own writing direction, for places without markup."""
    return isolated(str(value))


@register.filter
def word(value: str) -> str:
    """Return the word of a status."""
    return appearance_of(value).word


register.filter("exit_words", exit_words)


@register.filter
def steps(record: SchedulingRecord) -> list[Step]:
    """Return the steps of a row of the history, each with all of its fields."""
    return shown_steps(record)


@register.filter
def moment(text: str) -> datetime | None:
    """Return a time parsed from text; None if it is invalid."""
    return parse_datetime(text)


@register.filter
def tries(session: ComputeSession) -> str:
    """Return ``attempt 2 of 4`` for a start that failed before, else an empty text."""
    return try_text(session)


@register.simple_tag
def styles(bundle: str) -> SafeString:
    """Return the links to the style sheets of a bundle."""
    return format_html_join("\n", '<link rel="stylesheet" href="{}">', zip(addresses_of(STYLES, bundle, "css")))


@register.simple_tag
def scripts(bundle: str) -> SafeString:
    """Return the elements that load the scripts of a bundle."""
    return format_html_join("\n", '<script defer src="{}"></script>', zip(addresses_of(SCRIPTS, bundle, "js")))


@register.simple_tag
def ago(moment: datetime | None) -> str:
    """Return a time element with a relative time, which the page's script updates."""
    if moment is None:
        return "–"
    return format_html('<time datetime="{}" data-ago>{}</time>', moment.isoformat(), relative(moment, timezone.now()))


@register.simple_tag
def due(moment: datetime | None) -> str:
    """Return a time element with the relative time of an end, which is "any moment now" from then on."""
    if moment is None:
        return "–"
    now = timezone.now()
    text = relative(moment, now) if (moment - now).total_seconds() >= 10 else _("any moment now")
    return format_html('<time datetime="{}" data-ago="due">{}</time>', moment.isoformat(), text)


@register.simple_tag
def exact(moment: datetime | None) -> str:
    """Return a time element with the exact time, which the page's script converts to the user's time zone."""
    if moment is None:
        return "–"
    text = f"{_local(moment):%Y-%m-%d %H:%M:%S %Z}"
    return format_html('<time datetime="{}" data-exact>{}</time>', moment.isoformat(), text)


@register.simple_tag
def soon(moment: datetime | None) -> str:
    """Return a time element with the time. The page's script shows it without the date if it is today."""
    if moment is None:
        return "–"
    text = f"{_local(moment):%Y-%m-%d %H:%M %Z}"
    return format_html('<time datetime="{}" data-exact="short">{}</time>', moment.isoformat(), text)


def _local(moment: datetime) -> datetime:
    """Return the time in the reader's zone; as it is if that would be outside of the calendar."""
    try:
        return timezone.localtime(moment)
    except OverflowError:
        return moment


@register.filter
def with_times(text: object) -> SafeString:
    """Return the text with its times as time elements. The page's script converts them to the user's time zone."""
    if isinstance(text, SafeData):
        return mark_safe(str(text))  # noqa: S308  (it is markup already)
    parts = _MOMENT.split(str(text))
    said = [_clocked(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return mark_safe("".join(said))  # noqa: S308  (each part is escaped)


@register.simple_tag
def elapsed(start: datetime | None, end: datetime | None = None) -> str:
    """Return the time between two moments as hours, minutes and seconds; without an end it keeps counting."""
    if start is None:
        return "–"
    text = clock(max(0, int(((end or timezone.now()) - start).total_seconds())))
    return format_html(
        '<time datetime="{}" data-elapsed="{}">{}</time>', start.isoformat(), end.isoformat() if end else "", text
    )


@register.filter
def amounts(slots: Slots | dict[str, Any] | None) -> str:
    """Return the amounts of slots as text: ``2 CPU · 4 GiB``."""
    mapping = slots if isinstance(slots, Slots) else Slots.parse(slots or {})
    return " · ".join(_amount(name, mapping[name]) for name in in_order(mapping.keys())) or "–"


@register.filter
def limit(value: Any, slot: str = "") -> str:
    """Return a limit as text: ``∞`` for none, a duration, an amount of a slot, or a number."""
    return short_duration(value) if isinstance(value, timedelta) else limit_text(value, slot)


@register.filter
def size(value: int) -> str:
    """Return bytes as text, in binary units."""
    return format_size(value).replace(" ", _NBSP)


@register.simple_tag
def field(bound: BoundField, *, must: bool = False, **attrs: Any) -> SafeString:
    """Return a form field with its label, help and errors, linked for screen readers.

    ``must`` leaves out the word "optional" if only the service knows when the field is needed.
    """
    described = [f"{bound.auto_id}_help"] if bound.help_text else []
    described += [f"{bound.auto_id}_error"] if bound.errors else []
    extra = {key.replace("_", "-"): value for key, value in attrs.items()}
    if words := bound.field.widget.attrs.get("placeholder"):
        extra.setdefault("placeholder", in_words(words))
    if described:
        extra["aria-describedby"] = " ".join(described)
    if bound.errors:
        extra["aria-invalid"] = "true"
    own = bound.field.widget.attrs.get("class", "")
    extra["class"] = " ".join(filter(None, [_look_of(bound), own, "is-invalid" if bound.errors else ""]))
    context = {
        "field": bound,
        "widget": bound.as_widget(attrs=extra),
        "is_check": bound.widget_type == "checkbox",
        "is_many": bound.widget_type in ("checkboxselectmultiple", "radioselect"),
        "is_optional": not (must or bound.field.required),
    }
    return render_to_string("web/_field.html", context)


@register.simple_tag
def filter_field(bound: BoundField) -> SafeString:
    """Return a filter of a list: its label and input in one line."""
    widget = bound.as_widget(attrs={"class": _look_of(bound)})
    return format_html('<label for="{}">{}</label>{}', bound.id_for_label, in_words(bound.label), widget)


def _look_of(bound: BoundField) -> str:
    widget = bound.field.widget
    if isinstance(widget, CheckboxSelectMultiple | RadioSelect):
        return "choice-list"
    if isinstance(widget, CheckboxInput):
        return "form-check-input"
    return "form-select" if isinstance(widget, Select) else "form-control"


def _clocked(text: str) -> str:
    try:
        at = datetime.fromisoformat(f"{text}+00:00")
    except ValueError:  # a 31st of February, of which somebody else has written
        return f"{text} UTC"
    return f"{soon(at)} ({ago(at)})"


@cache
def _svg(name: str) -> SafeString:
    if not name.replace("-", "").isalnum():
        raise ValueError(f"{name!r} is not an icon name")
    path = settings.BASE_DIR / "templates" / "icons" / f"{name}.svg"
    return mark_safe(path.read_text())  # noqa: S308  (our own file, no user content)


def _amount(name: str, amount: int) -> str:
    if is_size(name):
        text = format_size(amount // 1000)
        return (text if name == "mem" else f"{text} {name}").replace(" ", _NBSP)
    return f"{decimal_text(amount)}{_NBSP}{name_of_slot(name)}"
