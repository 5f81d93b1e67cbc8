"""Parts of a board that a page keeps while they are the same: that of 500 steps has 190 KB, of which little changes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from django.utils.safestring import SafeString, mark_safe

_DIGITS = 8


class Parts:
    """Cuts HTML into parts and leaves out those that the page has: htmx keeps the page's own in their places.

    ``seen``: what ``told`` returned when the page was sent; empty: the page has none."""

    def __init__(self, seen: str = "") -> None:
        self._seen = [seen[at : at + _DIGITS] for at in range(0, len(seen), _DIGITS)]
        self._now: list[str] = []

    @property
    def told(self) -> str:
        """The digests of all parts in their order, for the next look."""
        return "".join(self._now)

    def is_kept(self, content: str) -> bool:
        """Return whether the page has the next part as it is now."""
        place, digest = len(self._now), f"{zlib.crc32(content.encode()):0{_DIGITS}x}"
        self._now.append(digest)
        return place < len(self._seen) and self._seen[place] == digest

    def cut(self, tag: str, name: str, pieces: Sequence[str], size: int) -> SafeString:
        """Return pieces of HTML in elements of so many each, which are empty where the page has them."""
        found = []
        for number, at in enumerate(range(0, len(pieces), size)):
            content = "".join(pieces[at : at + size])
            own, content = (' hx-preserve="true"', "") if self.is_kept(content) else ("", content)
            found.append(f'<{tag} id="{name}-{number}"{own}>{content}</{tag}>')
        return mark_safe("".join(found))  # noqa: S308  (of pieces that are HTML)
