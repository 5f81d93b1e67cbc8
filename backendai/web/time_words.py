"""Lengths of time and moments relative to now, in words. ``static/js/times.js`` keeps them fresh with the same words,
which ``time_words`` writes into the page."""

from __future__ import annotations

from datetime import datetime

from django.utils.html import format_html
from django.utils.safestring import SafeString

from backendai.texts.translation import gettext as _

_DAY = 86400
_SIZES = (_DAY, 3600, 60, 1)


def relative(moment: datetime, now: datetime) -> str:
    """Return a moment as ``5 min ago``, ``in 2 h`` or ``just now``."""
    seconds = int((now - moment).total_seconds())
    if abs(seconds) < 10:
        return _("just now")
    place = next(place for place, size in enumerate(_SIZES) if abs(seconds) >= size)
    text = _units()[place] % {"number": abs(seconds) // _SIZES[place]}
    return (_("%(time)s ago") if seconds > 0 else _("in %(time)s")) % {"time": text}


def clock(seconds: int) -> str:
    """Return a length of time as hours, minutes and seconds, from a day on as ``2 d 3 h``."""
    if seconds < _DAY:
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    days, hours = seconds // _DAY, seconds % _DAY // 3600
    units = _units()
    text = units[0] % {"number": days}
    return f"{text} {units[1] % {'number': hours}}" if hours else text


def time_words() -> SafeString:
    """Return an element with the words, for the script of every page."""
    days, hours, minutes, seconds = _units()
    return format_html(
        '<template id="time-words" data-now="{}" data-ago="{}" data-in="{}" data-units="{}"></template>',
        _("just now"),
        _("%(time)s ago"),
        _("in %(time)s"),
        "|".join((days, hours, minutes, seconds)),
    )


def _units() -> tuple[str, str, str, str]:
    return _("%(number)s d"), _("%(number)s h"), _("%(number)s min"), _("%(number)s s")
