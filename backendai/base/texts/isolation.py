"""Names that people have given, put into sentences without turning what stands beside them.

A name in Hebrew, or one with a character that overrides the direction, reorders the rest of its sentence on the screen.
Unicode's isolates keep it to itself, in pages and in places without markup: titles, options, labels, mails.
"""

from __future__ import annotations

import re

_ISOLATE, _END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
_OPENERS = "\N{LEFT-TO-RIGHT ISOLATE}\N{RIGHT-TO-LEFT ISOLATE}\N{FIRST STRONG ISOLATE}"
# Letters that run from right to left, and the characters that change the direction or end such a change.
_TURNS = re.compile(
    "[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)


def turns(text: str) -> bool:
    """Return whether anything in a text could change the direction of what stands beside it."""
    return not text.isascii() and _TURNS.search(text) is not None


def isolated(text: str) -> str:
    """Return a text that keeps its direction to itself; as it is when nothing in it runs from right to left."""
    if not turns(text) or _is_isolated(text):
        return text
    return f"{_ISOLATE}{_balanced(text)}{_END}"


def _is_isolated(text: str) -> bool:
    """Return whether one pair of ours is around the whole of it."""
    return text[0] == _ISOLATE and text[-1] == _END and _balanced(text[1:-1]) == text[1:-1]


def _balanced(text: str) -> str:
    """Return the text without ends of isolates that it did not begin, and with the ends of those that it did."""
    kept, depth = [], 0
    for letter in text:
        if letter == _END and not depth:
            continue
        depth += (letter in _OPENERS) - (letter == _END)
        kept.append(letter)
    return "".join(kept) + _END * depth
