"""Template tags for the rows of the panel's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.template.base import render_value_in_context
from django.template.context import Context
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.portal.web.dashboard.resources import Bar
from backendai.portal.web.templatetags.portal import fullness

register = template.Library()


@register.simple_tag(takes_context=True)
def panel_rows(context: Context, table: Any) -> SafeString:
    """Return the rows of a page of the table: cells with their column's name, which small screens show."""
    openings = [(column.name, _opening(column, is_first=place == 0)) for place, column in enumerate(table.columns)]
    parts: list[str] = []
    for row in table.paginated_rows:
        parts.append("<tr>")
        for name, opening in openings:
            cell = render_value_in_context(row.get_cell(name), context)
            parts += (opening, conditional_escape(cell), "</span></td>")
        parts.append("</tr>\n")
    return mark_safe("".join(parts))  # noqa: S308  (each part is escaped)


@register.simple_tag
def use_bars(bars: Sequence[Bar]) -> SafeString:
    """Return bars of the occupied amount of each slot. Built without a template, as a list has a hundred of them."""
    if not bars:
        return format_html('<span class="text-secondary">{}</span>', _("No capacity reported."))
    return format_html_join("", _BAR, map(_parts_of, bars))


def load_bars(parts: Sequence[tuple[str, int]]) -> SafeString:
    """Return a bar for each name and per cent."""
    return format_html_join(
        "", _LOAD, ((name, percent, percent, fullness(percent), name, percent, percent) for name, percent in parts)
    )


_LOAD = (
    '<div class="bar"><div class="bar-text"><span>{}</span> <span class="number">{} %</span></div>\n'
    '<meter min="0" max="100" value="{}" class="{}" aria-label="{}: {} %">{} %</meter></div>'
)
_BAR = (
    '<div class="bar"><div class="bar-text"><span>{}</span> <span class="number"><strong>{}</strong>'
    ' <span class="text-secondary">{}</span></span></div>\n'
    '<meter min="0" max="100" value="{}" aria-label="{}">{} %</meter></div>'
)


def _parts_of(bar: Bar) -> tuple[object, ...]:
    # No colour for full: an agent whose slots are all allocated is well used, and no alarm.
    name, used, total, percent = bar.name, bar.used_text, bar.total_text, bar.percent
    said = {"name": name, "used_text": used, "total_text": total}
    label = _("%(name)s: %(used_text)s of %(total_text)s allocated") % said
    return name, used, _("of %(total_text)s") % said, percent, label, percent


def _opening(column: Any, *, is_first: bool) -> SafeString:
    attributes = column.attrs["td"].as_html()
    if is_first or column.column.exclude_from_export:
        return format_html("<td {}><span>", attributes)
    return format_html('<td {} data-label="{}"><span>', attributes, in_words(column.header))
