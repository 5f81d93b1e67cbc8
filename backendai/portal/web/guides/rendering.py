"""Renders a guide's Markdown to HTML, once for each process and again when the file changes.

Raw HTML is escaped. Links and images lead only where ``_address`` and ``_picture`` allow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from backendai.portal.web.guides.documents import FOLDER, USER_GUIDE, Guide

PREFIX = "guide-"  # before each anchor: a page has other ids, too
_OUTSIDE = ("https://", "http://", "mailto:")
_PICTURE = re.compile(r"(?:\.\./)?(screenshots/([a-z0-9-]+)\.png)")
_OTHER_GUIDE = re.compile(r"(?:docs/|\.\./)?(?:tutorials/|how-to/)?([a-z-]+)\.md(?:#(.*))?")
_NO_PART_OF_AN_ANCHOR = re.compile(r"[^\w\- ]")
_HOST, _PORT = re.compile(r"(?<!in `)\bHOST\b"), re.compile(r"\b2200\b")
_SECTIONS = ("h2", "h3")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its text up to the next one.

    ``heading`` and ``words`` are title and whole text in lower case, for the search.
    """

    level: int
    anchor: str
    title: SafeString
    html: SafeString
    heading: str
    words: str

    def html_for(self, address: str) -> SafeString:
        """Return the section's HTML for another page.

        Links within the guide lead to the guide's page at ``address``.
        """
        return mark_safe(self.html.replace('href="#', f'href="{address}#'))  # noqa: S308  (made by the parser)

    def relevance(self, text: str) -> tuple[bool, int, int]:
        """Return how well the section matches a search; larger is better.

        Compares whether all words are in its title, how many are, and how often they occur.
        """
        words = text.lower().split()
        in_title = sum(word in self.heading for word in words)
        return in_title == len(words), in_title, sum(self.words.count(word) for word in words)


@dataclass(frozen=True, slots=True)
class Page:
    """A guide: its title, the text before the first heading, its sections, and all its anchors."""

    title: SafeString
    lead: SafeString
    sections: tuple[Section, ...]
    anchors: frozenset[str]

    def matching(self, text: str) -> list[Section]:
        """Return the sections that contain every word of the text."""
        words = text.lower().split()
        return [section for section in self.sections if all(word in section.words for word in words)]


_kept: dict[tuple[str, frozenset[str]], tuple[int, Page]] = {}


def page_of(guide: Guide, readable: Collection[Guide]) -> Page:
    """Return a rendered guide that links only to the ``readable`` guides. Raises OSError if its file is missing."""
    slugs = frozenset(one.slug for one in readable)
    changed_at = guide.path.stat().st_mtime_ns
    known = _kept.get((guide.slug, slugs))
    if known is None or known[0] != changed_at:
        known = _kept[guide.slug, slugs] = (changed_at, _Renderer(slugs).page(_of_site(guide)))
    return known[1]


def _of_site(guide: Guide) -> str:
    """Return the guide's text; the user guide with this site's address of the SSH gate, as people copy its commands."""
    text = guide.path.read_text(encoding="utf-8")
    if guide.slug != USER_GUIDE:
        return text
    host = settings.SSH_PUBLIC_HOST or urlsplit(settings.PORTAL_URL).hostname or "HOST"
    return _HOST.sub(host, _PORT.sub(str(settings.SSH_PUBLIC_PORT), text))


class _Renderer:
    def __init__(self, readable: frozenset[str]) -> None:
        self._readable = readable
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        rules = {"table_open": _table_open, "table_close": _table_close, "fence": _code, "code_block": _code}
        for name, rule in rules.items():
            self._markdown.add_render_rule(name, rule)

    def page(self, text: str) -> Page:
        """Return the whole guide from its Markdown."""
        tokens = self._markdown.parse(text)
        anchors: set[str] = set()
        for place, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", PREFIX + _new_anchor(_plain(tokens[place + 1]), anchors))
            elif token.type == "th_open":
                token.attrSet("scope", "col")
            self._redirect(token.children or [])
        parts = list(_parts(tokens))
        title, lead = "", ""
        if parts and parts[0][0] is not None:
            title = self._inline(parts[0][1][1])
            lead = self._html(parts[0][1][3:])
        sections = tuple(self._section(part) for level, part in parts if level in _SECTIONS)
        return Page(mark_safe(title), mark_safe(lead), sections, frozenset(anchors))  # noqa: S308  (made by the parser)

    def _section(self, tokens: Sequence[Token]) -> Section:
        heading = _plain(tokens[1])
        words = " ".join(_plain(token) for token in tokens if token.type in ("inline", "fence", "code_block"))
        return Section(
            level=int(tokens[0].tag[1]),
            anchor=str(tokens[0].attrGet("id")),
            title=mark_safe(self._inline(tokens[1])),  # noqa: S308  (made by the parser)
            html=mark_safe(self._html(tokens[3:])),  # noqa: S308
            heading=" ".join(heading.lower().split()),
            words=" ".join(words.lower().split()),
        )

    def _html(self, tokens: Sequence[Token]) -> str:
        return str(self._markdown.renderer.render(tokens, self._markdown.options, {}))

    def _inline(self, token: Token) -> str:
        return str(self._markdown.renderer.render([token], self._markdown.options, {}))

    def _redirect(self, tokens: Sequence[Token]) -> None:
        """Replace the targets of links and pictures with addresses of the portal.

        A link without a target becomes plain text.
        """
        opened: list[Token] = []
        for token in tokens:
            if token.type == "link_open":
                address = self._address(str(token.attrGet("href") or ""))
                token.attrs = {"href": address} if address else {}
                token.tag = "a" if address else "span"
                if address.startswith(_OUTSIDE):
                    token.attrs |= {"rel": "noopener noreferrer", "target": "_blank"}
                opened.append(token)
            elif token.type == "link_close":
                token.tag = opened.pop().tag
            elif token.type == "image":
                _picture(token)

    def _address(self, href: str) -> str:
        if href.startswith(_OUTSIDE):
            return href
        if href.startswith("#"):
            return f"#{PREFIX}{href[1:]}"
        found = _OTHER_GUIDE.fullmatch(href)
        if found is None or found[1] not in self._readable:
            return ""
        return reverse("web:help", args=[found[1]]) + (f"#{PREFIX}{found[2]}" if found[2] else "")


def _picture(token: Token) -> None:
    """Show a picture of ``docs/``; any other picture becomes its text."""
    found = _PICTURE.fullmatch(str(token.attrGet("src") or ""))
    if found is None or not (FOLDER / found[1]).is_file():
        token.type, token.content, token.children = "text", _plain(token), None
        return
    token.attrs = {"src": reverse("web:help_picture", args=[found[2]]), "alt": "", "loading": "lazy"}


def _parts(tokens: Sequence[Token]) -> Iterator[tuple[str | None, list[Token]]]:
    """Split the tokens before each heading that starts a section; yields its tag and tokens.

    The tag is None for tokens before the first heading.
    """
    part: list[Token] = []
    tag: str | None = None
    for token in tokens:
        if token.type == "heading_open" and token.level == 0 and token.tag in ("h1", *_SECTIONS):
            if part:
                yield tag, part
            part, tag = [], token.tag
        part.append(token)
    if part:
        yield tag, part


def _new_anchor(title: str, taken: set[str]) -> str:
    """Return the anchor that GitHub gives to this heading, so that links work in both places. Adds it to ``taken``."""
    anchor = _NO_PART_OF_AN_ANCHOR.sub("", title.lower()).replace(" ", "-")
    found, number = anchor, 0
    while found in taken:
        number += 1
        found = f"{anchor}-{number}"
    taken.add(found)
    return found


def _plain(token: Token) -> str:
    """Return the text of a token, without markup."""
    if token.type == "softbreak":
        return " "
    if not token.children:
        return token.content
    return "".join(_plain(child) for child in token.children)


def _table_open(renderer: Any, tokens: Sequence[Token], place: int, *_: Any) -> str:
    return '<div class="guide-table" tabindex="0"><table>'


def _table_close(renderer: Any, tokens: Sequence[Token], place: int, *_: Any) -> str:
    return "</table></div>"


def _code(renderer: Any, tokens: Sequence[Token], place: int, *_: Any) -> str:
    return f'<pre tabindex="0"><code>{escape(tokens[place].content)}</code></pre>'
