"""The rows of the panel's tables."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.base import render_value_in_context
from django.template.context import Context
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from backendai.texts.sentences import in_words

register = template.Library()


@register.simple_tag(takes_context=True)
def panel_rows(context: Context, table: Any) -> SafeString:
    """Return the rows of a page of the table. What is the same in each of them is made once: in a template it would be
    made for every cell, and cost most of the page."""
    columns = list(table.columns)
    openings = [_opening(column, is_first=place == 0) for place, column in enumerate(columns)]
    parts: list[str] = []
    for row in table.paginated_rows:
        parts.append("<tr>")
        for column, opening in zip(columns, openings, strict=True):
            cell = render_value_in_context(row.get_cell(column.name), context)
            parts += (opening, conditional_escape(cell), "</span></td>")
        parts.append("</tr>\n")
    return mark_safe("".join(parts))  # noqa: S308  (each part is escaped)


def _opening(column: Any, *, is_first: bool) -> SafeString:
    attributes = column.attrs["td"].as_html()
    if is_first or column.column.exclude_from_export:
        return format_html("<td {}><span>", attributes)
    return format_html('<td {} data-label="{}"><span>', attributes, in_words(column.header))
