"""Template tags for check boxes of sessions."""

from __future__ import annotations

from typing import Any, cast

from django import template
from django.forms import BoundField
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from backendai.domain.compute.status import Status
from backendai.portal.web.frame.statuses import appearance_of

register = template.Library()


@register.simple_tag
def session_boxes(bound: BoundField) -> SafeString:
    """Return a check box for each session of a field, with name and status; empty without sessions.

    Built without a template, which takes ten times as long for hundreds of sessions.
    """
    words = {str(status): escape(appearance_of(status).word) for status in Status}
    chosen = {str(value) for value in bound.value() or ()}
    name, box = escape(bound.html_name), escape(bound.auto_id)
    sessions = cast(Any, bound.field).queryset.values_list("pk", "name", "status")
    return mark_safe(  # noqa: S308  (each part is escaped; ids are UUIDs)
        "\n".join(
            f'<label class="choice"><input type="checkbox" name="{name}" value="{pk}" id="{box}_{number}"'
            f"{' checked' if str(pk) in chosen else ''}>"
            f"<span><strong><bdi>{escape(title)}</bdi></strong><small>{words[status]}</small></span></label>"
            for number, (pk, title, status) in enumerate(sessions)
        )
    )
