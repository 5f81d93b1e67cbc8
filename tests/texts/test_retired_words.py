"""Words that docs/glossary.md prints bold in its last column are in no text that people read."""

import re
from pathlib import Path

from backendai.ops.texts.files import texts

ROOT = Path(__file__).parents[2]
GAP = re.compile(r"%\(\w+\)s|\{\w*\}")
# Why a text may have the word all the same.
ALLOWED = {
    "memory node %(numa)s": "a node of memory (NUMA), not an agent",
    "A cluster template has a list of nodes.": "nodes is the key of the official format",
    "A cluster has one main node.": "nodes is the key of the official format",
    "Node API": "the name of the address at which agents report",
    "Announce maintenance or news here.": "news in the plain sense, not a notification",
}


def retired() -> list[str]:
    rows = re.findall(r"^\|.*\|([^|]*)\|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    return [word for cell in rows for word in re.findall(r"\*\*([^*]+)\*\*", cell)]


def uses(text: str, words: list[str]) -> list[str]:
    plain = GAP.sub(" ", text)
    return [word for word in words if re.search(rf"\b{re.escape(word)}s?\b", plain, re.IGNORECASE)]


def test_no_text_has_a_word_that_the_glossary_retires() -> None:
    words = retired()
    assert {"deed", "node", "let rest"} <= set(words), "the glossary is read"
    assert uses("Two Deeds on %(node)s", words) == ["deed"], "in any case and number, gaps aside"
    found = texts()
    offenders = [
        f"{word!r} in {entry.files[0]}: {key.text}"
        for key, entry in found.items()
        for word in uses(f"{key.text} {entry.plural}", words)
        if key.text not in ALLOWED
    ]
    assert not offenders, "\n".join(offenders)
    stale = ALLOWED.keys() - {key.text for key in found}
    assert not stale, f"allowed, and in no source any more: {stale}"
