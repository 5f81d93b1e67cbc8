"""Texts typed by people, for display on a page."""

from __future__ import annotations

from django.utils.html import format_html


def name_text(text: str) -> str:
    """Return a name with its own writing direction, which does not affect the text around it."""
    return format_html("<bdi>{}</bdi>", text)
