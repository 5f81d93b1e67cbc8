"""Leaves out the parts of a run's live page that have not changed.

With 500 steps the page has 190 KB, of which little changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from django.utils.safestring import SafeString, mark_safe

_DIGITS = 8


class Parts:
    """Splits HTML into parts, and leaves out those that the page already has, which htmx keeps.

    ``seen``: the value of ``told`` when the page was sent; empty: the page has none.
    """

    def __init__(self, seen: str = "") -> None:
        self._seen = [seen[at : at + _DIGITS] for at in range(0, len(seen), _DIGITS)]
        self._now: list[str] = []

    @property
    def told(self) -> str:
        """The digests of all parts in their order, for the page's next request."""
        return "".join(self._now)

    def is_kept(self, content: str) -> bool:
        """Return whether the page already has the current content of the next part."""
        place, digest = len(self._now), f"{zlib.crc32(content.encode()):0{_DIGITS}x}"
        self._now.append(digest)
        return place < len(self._seen) and self._seen[place] == digest

    def cut(self, tag: str, name: str, pieces: Sequence[str], size: int) -> SafeString:
        """Return elements with ``size`` pieces of HTML each; elements that the page already has are empty."""
        found = []
        for number, at in enumerate(range(0, len(pieces), size)):
            content = "".join(pieces[at : at + size])
            own, content = (' hx-preserve="true"', "") if self.is_kept(content) else ("", content)
            found.append(f'<{tag} id="{name}-{number}"{own}>{content}</{tag}>')
        return mark_safe("".join(found))  # noqa: S308  (of pieces that are HTML)
