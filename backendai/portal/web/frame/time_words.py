"""Durations and relative times as text.

``static/js/times.js`` updates them with the same words, which ``time_words`` writes into the page.
"""

from __future__ import annotations

from datetime import datetime

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_noop as _noop

from backendai.base.texts.translation import gettext as _

_DAY, _HOUR = 86400, 3600
_SIZES = (_DAY, _HOUR, 60, 1)
_UNITS = (_noop("%(number)s d"), _noop("%(number)s h"), _noop("%(number)s min"), _noop("%(number)s s"))


def relative(moment: datetime, now: datetime) -> str:
    """Return a time as ``5 min ago``, ``in 1 h 53 min`` or ``just now``.

    Future times are more precise, because people plan by them.
    """
    seconds = int((now - moment).total_seconds())
    if abs(seconds) < 10:
        return _("just now")
    if seconds > 0:
        return _("%(time)s ago") % {"time": _span(seconds, closely=False)}
    return _("in %(time)s") % {"time": _span(-seconds, closely=True)}


def clock(seconds: int) -> str:
    """Return a duration as hours, minutes and seconds; from a day on as ``2 d 3 h``."""
    if seconds < _DAY:
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return _span(seconds, closely=True)


def time_words() -> SafeString:
    """Return an element with the translated words, for the script of every page."""
    return format_html(
        '<template id="time-words" data-now="{}" data-due="{}" data-ago="{}" data-in="{}" data-units="{}"></template>',
        _("just now"),
        _("any moment now"),
        _("%(time)s ago"),
        _("in %(time)s"),
        "|".join(map(_, _UNITS)),
    )


def _span(seconds: int, *, closely: bool) -> str:
    place = next(place for place, size in enumerate(_SIZES) if seconds >= size)
    text = _(_UNITS[place]) % {"number": seconds // _SIZES[place]}
    if not closely or _SIZES[place] < _HOUR:
        return text
    rest = seconds % _SIZES[place] // _SIZES[place + 1]
    return f"{text} {_(_UNITS[place + 1]) % {'number': rest}}" if rest else text
