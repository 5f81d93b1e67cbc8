"""Finds the translatable texts in templates and code, without running them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from django.utils.translation.template import templatize

from backendai.ops.tools.texts.catalogue import Entry, Key

_TRANSLATIONS = {"django.utils.translation", "backendai.base.texts.translation"}
# What each function's leading arguments are.
_ROLES = {
    "gettext": ("text",),
    "gettext_lazy": ("text",),
    "gettext_noop": ("text",),
    "ngettext": ("text", "plural"),
    "ngettext_lazy": ("text", "plural"),
    "pgettext": ("context", "text"),
    "pgettext_lazy": ("context", "text"),
    "npgettext": ("context", "text", "plural"),
    "npgettext_lazy": ("context", "text", "plural"),
}
# Calls whose first argument is the template of a message, under whatever module they are imported from.
MESSAGES = frozenset(
    {
        "Message", "UserError", "NotFound", "Conflict", "NotAllowed", "StorageFull", "PlatformError", "RegistryError",
        "NotInRegistry", "Unreachable", "DeletesNothing", "BackendError", "FileServerError", "StorageSilent",
        "SignatureRefused", "PathRefused", "NodeUnreachable", "PortalRefused",
        "_UndeletableTag", "Busy", "Overloaded", "BadAnswer", "FileRefused",
        "StartFailed", "ImageNotFound", "KernelGone", "StaleGeneration", "CommitFailed",
        "GuestMissing", "NotListening", "BadDefinition", "ToolMissing", "HomeGone", "PortalUnreachable",
        "TicketRefused", "FolderTicketRefused", "Changed",
    }
)  # fmt: skip
_CALL = re.compile(r"(?<!\w)(n?p?gettext|_)\(")
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sdrif]")


def texts_of_templates(folder: Path, root: Path) -> list[Entry]:
    """Return the texts of every template in the folder."""
    found = []
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.txt")]):
        found += [replace(entry, files=(_name(path, root),)) for entry in texts_of_template(path.read_text())]
    return found


def texts_of_template(source: str) -> Iterator[Entry]:
    """Yield the translatable texts of a template."""
    code = templatize(source)
    for match in _CALL.finditer(code):
        call = _call_at(code, match.start())
        if call is not None:
            entry = _entry_of(call, _ROLES["gettext" if match[1] == "_" else match[1]])
            if entry:
                yield entry


def texts_of_code(folder: Path, root: Path) -> list[Entry]:
    """Return the texts of every Python file in the folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        found += [replace(entry, files=(_name(path, root),)) for entry in texts_of_module(ast.parse(path.read_text()))]
    return found


def texts_of_module(tree: ast.Module) -> Iterator[Entry]:
    """Yield the translatable texts of a module, for any import names of the functions."""
    names = {
        alias.asname or alias.name: _ROLES[alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in _TRANSLATIONS
        for alias in node.names
        if alias.name in _ROLES
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _name_called(node)):
            roles = names.get(name) or (("text",) if name in MESSAGES else ())
            entry = _entry_of(node, roles)
            if entry:
                yield entry
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _named_texts(node)


def _named_texts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Entry]:
    """Yield the templates that the function gives a name before it makes a message of them."""
    nodes = list(ast.walk(function))
    calls = (node for node in nodes if isinstance(node, ast.Call) and node.args and _name_called(node) in MESSAGES)
    used = {node.args[0].id for node in calls if isinstance(node.args[0], ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in used:
            branches = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            for branch in branches:
                if isinstance(branch, ast.Constant) and isinstance(branch.value, str) and branch.value:
                    flags = frozenset({"python-format"}) if placeholders(branch.value) else frozenset()
                    yield Entry(Key(branch.value, ""), "", flags=flags)


def merged(entries: Iterable[Entry]) -> dict[Key, Entry]:
    """Return each text once, with all files that contain it."""
    found: dict[Key, Entry] = {}
    for entry in entries:
        known = found.setdefault(entry.key, entry)
        files = tuple(sorted({*known.files, *entry.files}))
        found[entry.key] = replace(known, plural=known.plural or entry.plural, files=files)
    return found


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a text, sorted."""
    return sorted(_PLACEHOLDER.findall(text.replace("%%", "")))


def _call_at(code: str, start: int) -> ast.Call | None:
    """Return the function call that starts there, or None; the surrounding text is not Python."""
    for end in (match.end() for match in re.finditer(r"\)", code[start:])):
        try:
            node = ast.parse(code[start : start + end], mode="eval").body
        except SyntaxError:
            continue
        return node if isinstance(node, ast.Call) else None
    return None


def _entry_of(call: ast.Call, roles: tuple[str, ...]) -> Entry | None:
    given: dict[str, str] = {}
    for role, argument in zip(roles, call.args, strict=False):
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            return None
        given[role] = argument.value
    text, plural = given.get("text", ""), given.get("plural", "")
    flags = frozenset({"python-format"}) if placeholders(text + plural) else frozenset()
    return Entry(Key(text, given.get("context", "")), plural, flags=flags) if text else None


def _name_called(call: ast.Call) -> str:
    """Return the name of the function or class, also of one that is called through its module."""
    called = call.func
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
