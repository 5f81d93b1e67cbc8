"""Chooses the language of a response if the user has not chosen one."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import get_supported_language_variant
from django.utils.translation.trans_real import parse_accept_lang_header


def language_asked_for(header: str) -> str:
    """Return the supported language that an ``Accept-Language`` header prefers; English if it names none."""
    for wish, __ in parse_accept_lang_header(header):
        try:
            return get_supported_language_variant(wish)
        except LookupError:
            continue
    return settings.LANGUAGE_CODE
