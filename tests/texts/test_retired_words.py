"""Words that docs/glossary.md prints bold in its last column are in no text that people read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from backendai.ops.tools.texts.files import texts

ROOT = Path(__file__).parents[2]
GAP = re.compile(r"%\(\w+\)s|\{\w*\}")
# Why a text may have the word all the same.
ALLOWED = {
    "memory node %(numa)s": "a node of memory (NUMA), not an agent",
    "A cluster template has a list of nodes.": "nodes is the key of the official format",
    "A cluster has one main node.": "nodes is the key of the official format",
    "Announce maintenance or news here.": "news in the plain sense, not a notification",
}
_ENVIRONMENT = re.compile(r"environment[ -]variables?|python environments?|virtual environments?", re.IGNORECASE)
_KUBERNETES_CODE = "backendai/agent/backends/kubernetes/"  # nodes and pods are what Kubernetes calls them


def retired() -> list[str]:
    rows = re.findall(r"^\|.*\|([^|]*)\|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    return [word for cell in rows for word in re.findall(r"\*\*([^*]+)\*\*", cell)]


def uses(text: str, words: list[str]) -> list[str]:
    plain = _ENVIRONMENT.sub(" ", GAP.sub(" ", text))
    return [word for word in words if re.search(rf"\b{re.escape(word)}s?\b", plain, re.IGNORECASE)]


def test_no_text_has_a_word_that_the_glossary_retires() -> None:
    words = retired()
    assert {"deed", "node", "let rest"} <= set(words), "the glossary is read"
    assert uses("Two Deeds on %(node)s", words) == ["deed"], "in any case and number, gaps aside"
    found = {message.id: [file for file, _ in message.locations] for message in texts() if message.id}
    offenders = [
        f"{word!r} in {files[0]}: {text}"
        for text, files in found.items()
        for word in uses(text if isinstance(text, str) else " ".join(text), words)
        if text not in ALLOWED
        and not (word in ("node", "pod") and all(file.startswith(_KUBERNETES_CODE) for file in files))
    ]
    assert not offenders, "\n".join(offenders)
    stale = ALLOWED.keys() - found.keys()
    assert not stale, f"allowed, and in no source any more: {stale}"


# Literals that no reader of texts finds: logs, help of commands, notes and reports of agents.
_LITERALS_ALLOWED = {
    _KUBERNETES_CODE: "pods and nodes are what Kubernetes calls them",
    "backendai/ops/doctor/kubernetes.py": "pods and nodes are what Kubernetes calls them",
    "backendai/ops/run/up.py": "names the pods of a Kubernetes cluster",
    "backendai/domain/templates/original.py": "nodes is the key of the official format",
    "backendai/domain/compute/spec.py": "single-node and multi-node are values of REST",
    "backendai/portal/web/pipelines/graphs.py": "a class of style",
}
_SENTENCE = re.compile(r"\w+ \w+ \w+")
_SQL = re.compile(r"\b(SELECT|UPDATE|INSERT|FROM)\b")


def _literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the sentences among the literals of a module, f-strings as a whole, without docstrings."""
    tree = ast.parse(path.read_text())
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # docstrings
            left_out.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out |= {id(value) for value in node.values}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            text = node.value
        if _SENTENCE.search(text) and not _SQL.search(text):
            yield node.lineno, text


def test_no_literal_has_a_word_that_the_glossary_retires() -> None:
    words = [
        word for word in retired() if word not in ("ticked", "wake", "notice", "news", "environment")
    ]  # plain in logs
    offenders = [
        f"{name}:{line}: {found} in {text[:100]!r}"
        for path in sorted((ROOT / "backendai").rglob("*.py"))
        for name in (path.relative_to(ROOT).as_posix(),)
        if "/migrations/" not in name and not name.startswith(tuple(_LITERALS_ALLOWED))
        for line, text in _literals(path)
        if (found := uses(text, words))
    ]
    assert not offenders, "\n".join(offenders)


# Phrases of documents that may have a retired word all the same, and why.
_PHRASES_ALLOWED = {
    "/node/v1": "the address at which agents report",
    "node API": "the name of that address",
    "node job": "the name of the protocol in base/wire/node_jobs.py",
    "NUMA node": "a node of memory",
    "Node.js": "a program",
    "1,000 nodes, 10,000 jobs": "nodes of Slurm",
}
# Sections about Kubernetes, whose words are nodes and pods.
_KUBERNETES = re.compile(r"^## [^\n]*(?:Kubernetes|[Pp]od)[^\n]*\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PLAIN_WORDS = ("wake", "notice", "environment")  # also meant plainly in documents
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def test_no_document_has_a_word_that_the_glossary_retires() -> None:
    words = [word for word in retired() if word not in _PLAIN_WORDS]
    kubernetes = [word for word in words if word not in ("node", "pod")]
    offenders = []
    written = [
        path for folder in (".", "tutorials", "how-to") for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ]
    for path in [ROOT / "README.md", *written]:
        if path.name == "glossary.md":
            continue
        text = _CODE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
        for phrase in _PHRASES_ALLOWED:
            text = text.replace(phrase, "")
        offenders += [f"{path.name}: {line}" for line in _offending(_KUBERNETES.sub("", text), words)]
        for section in _KUBERNETES.findall(text):
            offenders += [f"{path.name}: {line}" for line in _offending(section, kubernetes)]
    assert not offenders, "\n".join(offenders)


def _offending(text: str, words: list[str]) -> list[str]:
    return [f"{found} in {line.strip()[:160]!r}" for line in text.splitlines() if (found := uses(line, words))]


def retired_names() -> set[str]:
    section = (ROOT / "docs" / "glossary.md").read_text().partition("## Names of modules and classes")[2]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}


def test_no_module_and_no_public_class_has_a_retired_name() -> None:
    retired = retired_names()
    assert "picture" in retired
    offenders = []
    for path in sorted((ROOT / "backendai").rglob("*.py")):
        classes = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        for name in [path.stem, *(name for name in classes if not name.startswith("_"))]:
            words = {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z0-9]+", name)}
            if words & (retired | {word.removesuffix("s") for word in retired}):
                offenders.append(f"{path.relative_to(ROOT)}: {name}")
    assert not offenders, "\n".join(offenders)
