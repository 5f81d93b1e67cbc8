"""English sentences of the rooms below, in the language of the page.

Services, the scheduler and the nodes know no translation: they say one plain English sentence, which is stored and
logged as it is. A door recognises it by the patterns of ``locale/<language>/LC_MESSAGES/sentences.json``, in which
``{name}`` stands for what was filled in. What nobody has translated stays English.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.utils.functional import lazy
from django.utils.safestring import SafeData
from django.utils.translation import get_language

from backendai.core.messages import Message
from backendai.texts.isolation import isolated, turns
from backendai.texts.messages import render

_FIELD = re.compile(r"\{(\w+)\}")
_LIST = "; "
_SEPARATORS = (_LIST, ", ", " and ")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?]) (?=[A-Z0-9“])")
_DEEPEST = 4


class _Pattern(NamedTuple):
    """One sentence with gaps, and what it is in the other language."""

    matches: re.Pattern[str]
    translation: str


class _Book(NamedTuple):
    """All sentences of a language: those without gaps by their text, the others from the most particular on."""

    plain: dict[str, str]
    patterns: tuple[_Pattern, ...]


def in_words(text: object) -> str:
    """Return what a room below says in the language of the page; as it is where nobody has translated it. What was
    filled in does not turn the rest of it."""
    language = get_language() or settings.LANGUAGE_CODE
    if not text or isinstance(text, SafeData):
        return str(text)
    said = str(text)
    rendered = render(text)
    if rendered != said or isinstance(text, Message):
        return rendered
    return said if language == settings.LANGUAGE_CODE and not turns(said) else _translated(said, language)


in_words_lazy = lazy(in_words, str)


@lru_cache(maxsize=4096)
def _translated(text: str, language: str, depth: int = 0) -> str:
    book = _book(language)
    if not book.plain or depth > _DEEPEST:
        return text
    found = _whole(text, language, depth)
    if found is not None:
        return found
    sentences = _SENTENCE_ENDS.split(text)
    if len(sentences) > 1:
        return " ".join(_whole(one, language, depth) or one for one in sentences)
    name, colon, rest = text.partition(": ")  # a strategy and what it does
    return f"{name}{colon}{_whole(rest, language, depth) or rest}" if colon and " " not in name else text


def _whole(text: str, language: str, depth: int) -> str | None:
    """Return the translation of one sentence, None where it is not known."""
    book = _book(language)
    if text in book.plain:
        return book.plain[text]
    for pattern in book.patterns:
        if match := pattern.matches.fullmatch(text):
            filled = {name: _value(value, language, depth + 1) for name, value in match.groupdict().items()}
            parts = _FIELD.split(pattern.translation)
            return "".join(filled.get(part, "") if place % 2 else part for place, part in enumerate(parts))
    return None


def _value(text: str, language: str, depth: int) -> str:
    """Return what was filled in: a name kept apart, a sentence or a list of them translated."""
    if " " not in text or depth > _DEEPEST:
        return isolated(text)
    parts = [_whole(part, language, depth) for part in text.split(_LIST)]
    if None not in parts:
        return _LIST.join(filter(None, parts))
    found = _whole(text, language, depth)
    if found is not None:
        return found
    for separator in _SEPARATORS:
        if separator in text:
            return separator.join(_value(part, language, depth + 1) for part in text.split(separator))
    return isolated(text)


@cache
def _book(language: str) -> _Book:
    folder, name = Path(settings.BASE_DIR) / "locale", Path("LC_MESSAGES", "sentences.json")
    said: dict[str, str] = {}
    if language == settings.LANGUAGE_CODE:  # the sentences say themselves; their gaps are of use
        for path in folder.glob(f"*/{name}"):
            said |= {text: text for text in json.loads(path.read_text())}
    elif (path := folder / language / name).exists():
        said = json.loads(path.read_text())
    gaps = sorted((text for text in said if _FIELD.search(text)), key=lambda text: -len(_FIELD.sub("", text)))
    plain = {text: translation for text, translation in said.items() if not _FIELD.search(text)}
    return _Book(plain, tuple(_Pattern(_compiled(text), said[text]) for text in gaps))


def _compiled(text: str) -> re.Pattern[str]:
    """Return the pattern of a sentence; the same name stands for the same words."""
    seen: set[str] = set()
    pattern = ""
    for place, part in enumerate(_FIELD.split(text)):
        if place % 2 == 0:
            pattern += re.escape(part)
        elif part in seen:
            pattern += f"(?P={part})"
        else:
            seen.add(part)
            pattern += f"(?P<{part}>.*?)"
    return re.compile(pattern, re.DOTALL)
