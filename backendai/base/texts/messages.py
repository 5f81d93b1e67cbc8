"""Renders messages of the rooms below in the language of the page or response.

Services, the scheduler and agents write English templates with values (``core.messages``). A door renders a message:
the template is looked up in the catalogue, and names of people cannot change the text direction of the sentence.
"""

from __future__ import annotations

from typing import Any

from django.utils.functional import lazy
from django.utils.safestring import SafeData
from django.utils.translation import gettext

from backendai.base.core.messages import Message, filled
from backendai.base.texts.isolation import isolated

_LIST = ", "


def in_words(text: object) -> str:
    """Return a message in the language of the page. Markup, and templates that the catalogue lacks, are unchanged."""
    if not text or isinstance(text, SafeData):
        return str(text)
    message = text if isinstance(text, Message) else Message.of(str(text))
    translated = gettext(message.template) if message.template else ""
    return filled(translated, message.values, _shown) if message.values else translated


in_words_lazy = lazy(in_words, str)


def _shown(value: Any) -> str:
    if isinstance(value, Message):
        return in_words(value)
    if isinstance(value, tuple):
        return _LIST.join(map(_shown, value))
    if isinstance(value, str):
        return isolated(value)
    return "" if value is None else str(value)
