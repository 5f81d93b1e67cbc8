"""Links and pictures of all documents lead to files and headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [ROOT, *(ROOT / "docs" / name for name in (".", "tutorials", "how-to"))]  # elsewhere pages are generated
DOCUMENTS = [path.resolve() for folder in FOLDERS for path in sorted(folder.glob("*.md"))]
GUIDES = [path for path in DOCUMENTS if path.parent.name in ("tutorials", "how-to")]
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_NO_PART_OF_AN_ANCHOR = re.compile(r"[^\w\- ]")
_OUTSIDE = re.compile(r"[a-z]+:")


@cache
def tokens_of(path: Path) -> list[Token]:
    return _MARKDOWN.parse(path.read_text())


def plain(token: Token) -> str:
    return "".join(plain(child) for child in token.children) if token.children else token.content


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """Return the anchors that GitHub and Sphinx give to the headings."""
    found: list[str] = []
    tokens = tokens_of(path)
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            anchor = _NO_PART_OF_AN_ANCHOR.sub("", plain(tokens[place + 1]).lower()).replace(" ", "-")
            alike = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", one) is not None for one in found)
            found.append(f"{anchor}-{alike}" if alike else anchor)
    return frozenset(found)


def targets_of(path: Path) -> Iterator[str]:
    for token in tokens_of(path):
        for child in token.children or ():
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            if target is not None:
                yield unquote(str(target))


def why_broken(path: Path, target: str) -> str:
    name, _hash, anchor = target.partition("#")
    led_to = (path.parent / name).resolve() if name else path
    if not led_to.exists():
        return "there is no such file"
    if anchor and anchor not in anchors_of(led_to):
        return "there is no such heading"
    return ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_pictures_lead_somewhere(path: Path) -> None:
    inner = [target for target in targets_of(path) if not _OUTSIDE.match(target)]
    assert {target: why for target in inner if (why := why_broken(path, target))} == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One\n\n## Same\n\n## Same\n\n[x](b.md) [y](#same-1) [z](#same-2) ![p](p.png)\n")
    found = {target: why_broken(tmp_path / "a.md", target) for target in targets_of(tmp_path / "a.md")}
    no_file, no_heading = "there is no such file", "there is no such heading"
    assert found == {"b.md": no_file, "#same-1": "", "#same-2": no_heading, "p.png": no_file}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_tutorial_and_a_how_to_say_what_one_needs_and_have_no_markup_but_markdown(path: Path) -> None:
    tokens = tokens_of(path)
    raw = [one.content for token in tokens for one in (token, *(token.children or ())) if one.type.startswith("html")]
    assert raw == []
    if path.name != "troubleshooting.md":
        assert "what-you-need" in anchors_of(path)
