"""The English sentences of the rooms below the pages: refusals, reasons, helps of fields, words of choices.

Those rooms know no translation. A page recognises their sentences by these patterns (``backendai.texts.sentences``), in
which ``{name}`` stands for what was filled in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from backendai.ops.texts.catalogue import Entry, Key

ROOMS = ("core", "scheduler", "activity", "accounts", "cluster", "catalog", "compute", "usage", "planning", "appproxy")
# Of the nodes only what becomes of a kernel; the rest is for whoever looks after the machines.
_ENGINE_FILES = ("backends/docker_commits", "backends/docker_end", "backends/docker_images")
NODE_FILES = ("ends", "starts", "kernels", "commits", "reconcile", *_ENGINE_FILES)
FIELDS = re.compile(r"\{(\w+)\}")
_PROSE = re.compile(r"[A-Za-z{}]{2,}[,;:.]? [A-Za-z({“\"%0-9]")
_UNREAD = {"auditing.py", "bulk.py", "admin.py", "null_bytes.py", "by_row.py", "scanning_http.py", "signatures.py"}
_CODE = re.compile(r"^\{\"|[=<>\\\r]|__|\bSELECT\b|\bUPDATE\b|\bINSERT\b|\bWHERE\b|%\w|^\W*$|\w+_\w+\.\w|\w\(")
# What is written for administrators of machines, in logs and tracebacks.
_NOT_READ = {
    "ValueError",
    "RuntimeError",
    "TypeError",
    "KeyError",
    "LookupError",
    "ImproperlyConfigured",
    "OSError",
    "TransactionManagementError",
}
_NOT_READ |= {"compile", "execute", "RunSQL", "getLogger", "add_argument", "RawSQL", "CommandError", "AssertionError"}
_WORDS = {"TextChoices", "IntegerChoices", "StrEnum"}


def sentences_of_code(package: Path, root: Path) -> list[Entry]:
    """Return the sentences of the rooms below the pages."""
    found = []
    for room in ROOMS:
        for path in sorted((package / room).rglob("*.py")):
            if not {"migrations", "management"} & set(path.parts) and path.name not in _UNREAD:
                name = path.relative_to(root).as_posix()
                tree = ast.parse(path.read_text())
                found += [replace(entry, files=(name,)) for entry in sentences_of_module(tree)]
    for name in NODE_FILES:
        path = package / "agent" / f"{name}.py"
        entries = sentences_of_module(ast.parse(path.read_text()))
        found += [replace(entry, files=(path.relative_to(root).as_posix(),)) for entry in entries]
    return found


def sentences_of_module(tree: ast.Module) -> Iterator[Entry]:
    """Return a module's sentences, and the words of its choices."""
    reader = _Reader()
    reader.visit(tree)
    return (Entry(Key(text)) for text in dict.fromkeys(reader.found))


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(ast.unparse(base).split(".")[-1] in _WORDS for base in node.bases):
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Tuple):
                    label = line.value.elts[-1]
                    if isinstance(label, ast.Constant) and isinstance(label.value, str):
                        self.found.append(label.value)
        else:
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).split(".")
        if name[-1] not in _NOT_READ and name[0] != "logger":
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nobody reads it."""

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._note(node.value.replace("{", "{{").replace("}", "}}") if FIELDS.search(node.value) else node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        names: dict[str, str] = {}
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                text += "{" + _name_for(part.value, names) + "}"
                self.visit(part.value)
        self._note(text)

    def _note(self, text: str) -> None:
        text = text.strip()
        if (
            re.search(r"[A-Za-z]{2,}.* .*[a-z]{2,}|[a-z]{4,} ", FIELDS.sub("", text))
            and _PROSE.search(FIELDS.sub("{}", text))
            and not _CODE.search(text)
        ):
            self.found.append(text)


def _name_for(value: ast.expr, names: dict[str, str]) -> str:
    """Return a name for what is filled in: the same one for the same code, another one for other code."""
    code = ast.unparse(value)
    last = re.findall(r"[a-z]\w*", code.lower())
    plain = "plural" if isinstance(value, ast.IfExp) else (last[-1] if last else "value").strip("_")
    name, number = plain, 2
    while names.setdefault(name, code) != code:
        name, number = f"{plain}_{number}", number + 1
    return name
