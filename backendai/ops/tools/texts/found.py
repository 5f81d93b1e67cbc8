"""Finds the translatable texts in templates and code, without running them: two extraction methods for Babel."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from io import BytesIO
from typing import IO, Any

from babel.messages.extract import extract_python
from django.utils.translation.template import templatize

_TRANSLATIONS = {"django.utils.translation", "backendai.base.texts.translation"}
# Calls whose first argument is the template of a message, under whatever module they are imported from.
MESSAGES = frozenset(
    {
        "Message", "UserError", "NotFound", "Conflict", "NotAllowed", "StorageFull", "PlatformError", "RegistryError",
        "NotInRegistry", "Unreachable", "DeletesNothing", "BackendError", "FileServerError", "StorageSilent",
        "SignatureRefused", "PathRefused", "NodeUnreachable", "PortalRefused",
        "_UndeletableTag", "Busy", "KeyReused", "Overloaded", "BadAnswer", "FileRefused",
        "StartFailed", "ImageNotFound", "KernelGone", "StaleGeneration", "CommitFailed",
        "GuestMissing", "NotListening", "BadDefinition", "ToolMissing", "HomeGone", "PortalUnreachable",
        "TicketRefused", "FolderTicketRefused", "Changed", "DeviceRefused", "NotOffered",
    }
)  # fmt: skip


def texts_of_template(
    file: IO[bytes], keywords: Mapping[str, Any], tags: Collection[str], options: Mapping[str, Any]
) -> Iterable[Any]:
    """Return the translatable texts of a template."""
    # In brackets, as the text between the calls is not indented as Python wants it.
    code = f"({templatize(file.read().decode())}\n)"
    return extract_python(BytesIO(code.encode()), keywords, tags, {})


def texts_of_module(
    file: IO[bytes], keywords: Mapping[str, Any], tags: Collection[str], options: Mapping[str, Any]
) -> Iterator[tuple[int, str, list[str | None], list[str]]]:
    """Yield the translatable texts of a module, for any import names of the functions.

    Babel's own method knows fixed names, and sees neither conditional texts nor those with a name.
    """
    nodes = [*ast.walk(ast.parse(file.read()))]
    names: dict[str, str] = dict.fromkeys(MESSAGES | {"MessageTemplate"}, "gettext") | {
        alias.asname or alias.name: function
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module in _TRANSLATIONS
        for alias in node.names
        if (function := alias.name.partition("_")[0]) in keywords
    }
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and (called := names.get(_name_called(node))):
            yield node.lineno, called, [_literal(argument) for argument in node.args], []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((node.lineno, "gettext", [text], []) for text in _named_texts(node))


def _named_texts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str | None]:
    """Yield the templates that the function gives a name before it makes a message of them."""
    nodes = [*ast.walk(function)]
    calls = (node for node in nodes if isinstance(node, ast.Call) and node.args and _name_called(node) in MESSAGES)
    used = {node.args[0].id for node in calls if isinstance(node.args[0], ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in used:
            branches = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            yield from map(_literal, branches)


def _literal(node: ast.expr) -> str | None:
    return (node.value or None) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _name_called(call: ast.Call) -> str:
    """Return the name of the function or class, also of one that is called through its module."""
    called = call.func
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
