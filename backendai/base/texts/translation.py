"""Django's translations as sentences that isolate the text direction of values in their gaps.

Pages and mails import their translations from here if a sentence has gaps; ``sentence % values`` looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.functional import lazy
from django.utils.translation import get_supported_language_variant
from django.utils.translation.trans_real import parse_accept_lang_header

from backendai.base.texts.isolation import isolated


class Sentence(str):
    """A translated text. Values in its gaps do not change the text direction of the rest."""

    __slots__ = ()

    def __mod__(self, values: Any) -> str:
        """Return the text with its gaps filled."""
        if isinstance(values, Mapping):
            return str.__mod__(self, {name: _kept_apart(value) for name, value in values.items()})
        return str.__mod__(self, values)


def gettext(text: str) -> str:
    """Return the translation of a text in the language of the page, as a ``Sentence``."""
    return Sentence(translation.gettext(text))


def ngettext(one: str, many: str, number: int) -> str:
    """Return the translation for this number in the language of the page, as a ``Sentence``."""
    return Sentence(translation.ngettext(one, many, number))


gettext_lazy = lazy(gettext, str)


def _kept_apart(value: Any) -> Any:
    return value if isinstance(value, int | float) else isolated(str(value))


def language_asked_for(header: str) -> str:
    """Return the supported language that an ``Accept-Language`` header prefers; English if it names none."""
    for wish, __ in parse_accept_lang_header(header):
        try:
            return get_supported_language_variant(wish)
        except LookupError:
            continue
    return settings.LANGUAGE_CODE
