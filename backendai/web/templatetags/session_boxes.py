"""Boxes for sessions to choose from."""

from __future__ import annotations

from typing import Any, cast

from django import template
from django.forms import BoundField
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from backendai.web.statuses import appearance_of

register = template.Library()

_BOX = (
    '<label class="choice"><input type="checkbox" name="{}" value="{}" id="{}_{}"{}>'
    "<span><strong><bdi>{}</bdi></strong><small>{}</small></span></label>"
)


@register.simple_tag
def session_boxes(bound: BoundField) -> SafeString:
    """Render a box for each session of a field, with its name and status. There may be hundreds, for each of which a
    template takes ten times as long."""
    chosen = {str(value) for value in bound.value() or ()}
    sessions = cast(Any, bound.field).queryset
    return format_html_join(
        "\n",
        _BOX,
        (
            (bound.html_name, pk, bound.auto_id, number, _CHECKED if pk in chosen else "", name, word)
            for number, (pk, name, word) in enumerate(
                (str(one.pk), one.name, appearance_of(one.status).word) for one in sessions
            )
        ),
    )


_CHECKED = mark_safe(" checked")
