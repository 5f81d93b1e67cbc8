"""Words that people typed, as a page shows them."""

from __future__ import annotations

from django.utils.html import format_html


def name_text(text: str) -> str:
    """Return a name as text that keeps its own direction: nothing beside it is turned round."""
    return format_html("<bdi>{}</bdi>", text)
