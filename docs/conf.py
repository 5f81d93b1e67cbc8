"""Builds the documents as a site (``bin/docs``). It writes the pages of reference from the tables of the platform."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import django
import yaml

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.testing")
django.setup()

from backendai.base.core.version import VERSION  # noqa: E402  (these need the set-up above)
from backendai.domain.compute.reasons import REASONS  # noqa: E402
from backendai.portal.web.session.reasons.advice import AFTERWARDS, CHANGES, HELPS  # noqa: E402

project = "Backend.AI portal"
version = release = VERSION
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_title = f"{project} {VERSION}"
exclude_patterns = ["README.md"]
_METHODS = ("get", "post", "put", "patch", "delete")


def setup(app: Any) -> None:
    """Write the pages of reference before Sphinx reads the documents."""
    (DOCS / "reference").mkdir(exist_ok=True)
    for name, lines in (("settings", settings()), ("reasons", reasons()), ("operations", operations())):
        path, text = DOCS / "reference" / f"{name}.md", "\n".join(lines) + "\n"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    app.connect("source-read", point_to_files)


def point_to_files(app: Any, name: str, source: list[str]) -> None:
    """Let links to files outside the documents give the file itself."""
    up = "../" * (name.count("/") + 1)
    source[0] = re.sub(rf"\]\({up}([\w.][^)#]*)(#[^)]*)?\)", rf"](path:{up}\1)", source[0])


def settings() -> Iterator[str]:
    """Yield the page of settings, from ``.env.example``."""
    yield "# Settings"
    yield "\nEach is an environment variable or a line of `.env`. The start refuses a value that it cannot use."
    comment: list[str] = []
    for line in (ROOT / ".env.example").read_text().splitlines()[3:]:
        if heading := re.fullmatch(r"# -- (.+?) -+", line):
            yield f"\n## {heading[1].capitalize()}\n"
            comment = []
        elif line.startswith("# "):
            comment.append(line[2:])
        elif found := re.fullmatch(r"#?([A-Z_]+)=(.*)", line):
            example = f" Example: `{found[2]}`." if found[2] else ""
            said = f"{_plain(' '.join(comment))}.{example}" if comment else f"See above.{example}"
            yield f"`{found[1]}`\n: {said}\n"
            comment = []


def reasons() -> Iterator[str]:
    """Yield the page of the codes with which sessions wait or have ended."""
    yield "# Reasons\n\nThe codes of REST (`status_reason`) and of the history, with what helps."
    yield from _table("Why a session has ended", ("Code", "Kind", "Meaning", "What helps"), (
        (f"`{code}`", reason.kind, _plain(reason.text), _plain(AFTERWARDS.get(code, "")))
        for code, reason in REASONS.items()
    ))  # fmt: skip
    yield from _table("Why a session waits", ("Code", "What helps", "If it can never start"), (
        (f"`{code}`", _plain(HELPS.get(code, "")), _plain(CHANGES.get(code, ""))) for code in sorted({*HELPS, *CHANGES})
    ))  # fmt: skip


def operations() -> Iterator[str]:
    """Yield the page of REST's operations, from ``openapi.yaml``."""
    yield "# REST operations\n\nA portal tries them at `/api/docs/`; [the introduction](../rest.md) explains calls."
    document = yaml.safe_load((DOCS / "openapi.yaml").read_text())
    by_tag: dict[str, list[tuple[str, ...]]] = {}
    for address, item in document["paths"].items():
        for method in (one for one in _METHODS if one in item):
            summary = _plain(item[method].get("summary", ""))
            row = (f"`{method.upper()} {address}`", f"`{item[method]['operationId']}`", summary)
            by_tag.setdefault(item[method]["tags"][0], []).append(row)
    for tag, rows in sorted(by_tag.items()):
        yield from _table(tag, ("Address", "Operation", "Summary"), rows)


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _plain(text: str) -> str:
    return re.sub(r"([|<*_])", r"\\\1", str(text))
