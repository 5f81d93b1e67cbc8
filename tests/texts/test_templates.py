"""Every template of a message has exactly the values that its gaps name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from backendai.base.core.messages import gaps
from backendai.ops.tools.texts.files import texts
from backendai.ops.tools.texts.found import MESSAGES

ROOT = Path(__file__).resolve().parents[2]
_CLASS, _WORD = re.compile(r"^class (\w+)\(([^)]*)\)", re.M), re.compile(r"\w+")
_NUMBERED = re.compile(r"\{\w*_\d+\}|%\(\w*_\d+\)")


def test_each_gap_has_a_name_that_says_what_it_is() -> None:
    numbered = [f"{one.locations[0][0]}: {one.id}" for one in texts() if _NUMBERED.search(str(one.id))]
    assert not numbered, "name what it is: least, most, asked, …"


def test_each_gap_of_a_template_has_a_value() -> None:
    assert list(_without_values()) == []


def _without_values() -> Iterator[str]:
    for path, call in message_calls():
        if isinstance(call.args[0], ast.Constant) and not any(keyword.arg is None for keyword in call.keywords):
            named, given = gaps(str(call.args[0].value)), {str(keyword.arg) for keyword in call.keywords}
            is_plain = isinstance(call.func, ast.Name) and call.func.id == "Message"
            if named - given or (is_plain and named and given - named - {"code"}):
                yield f"{path}:{call.lineno}: {named} and {given}"


def message_calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls whose first argument is a template, with the file that has them."""
    for path, calls, _ in _modules():
        yield from ((path, call) for call in calls if _name_of(call.func) in MESSAGES)


def test_no_message_or_error_is_made_of_an_f_string() -> None:
    # Administrators read the errors of commands and settings, in English, on the machine itself.
    found = [f"{path}:{line}" for path, _, lines in _modules() for line in lines if not _is_of_machine(path)]
    assert not found, "name the gaps: UserError('{name} is taken.', name=name)"


@pytest.mark.parametrize(
    "body",
    [
        "raise StartFailed(f'{name} is taken.')",
        "raise errors.UserError('No: ' + f'{name} is taken.')",
        "text = f'{name} is taken.'\n    raise KernelGone(text)",
        "return Message(f'{name} is taken.' if name else 'Nothing is taken.')",
    ],
)
def test_an_f_string_is_found_wherever_it_stands(body: str) -> None:
    assert _f_strings([*ast.walk(ast.parse(f"def one(name):\n    {body}\n"))])


def test_every_error_of_a_template_is_known_to_the_catalogues() -> None:
    calls = [call for path, calls, _ in _modules() for call in calls if not _is_of_machine(path)]
    made = {_name_of(call.func) for call in calls if _is_text(call.args[0])}
    assert made - {"__init__"} <= MESSAGES


def _is_of_machine(path: str) -> bool:
    return bool({"ops", "settings"} & {*path.split("/")})


@cache
def _modules() -> tuple[tuple[str, list[ast.Call], list[int]], ...]:
    """Return each module with the calls that make a message or an error, and the lines of those with f-strings."""
    found = []
    for path in sorted((ROOT / "backendai").rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        found.append((path.relative_to(ROOT).as_posix(), _calls_in(nodes), _f_strings(nodes)))
    return tuple(found)


def _f_strings(nodes: list[ast.AST]) -> list[int]:
    """Return the lines on which a message or an error gets an f-string, also under a name of the same function."""
    lines = [call.lineno for call in _calls_in(nodes) if any(map(_is_formatted, call.args))]
    if not any(isinstance(node, ast.Assign) and _is_formatted(node.value) for node in nodes):
        return lines
    for function in nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [*ast.walk(function)]
            texts = [node for node in inside if isinstance(node, ast.Assign) and _is_formatted(node.value)]
            named = {_name_of(target) for node in texts for target in node.targets} - {""}
            lines += [call.lineno for call in _calls_in(inside) if named & {*map(_name_of, call.args)}]
    return lines


def _is_formatted(node: ast.expr) -> bool:
    """Return whether the text is an f-string, or has one as a part or a branch."""
    if isinstance(node, ast.BinOp):
        return _is_formatted(node.left) or _is_formatted(node.right)
    if isinstance(node, ast.IfExp):
        return _is_formatted(node.body) or _is_formatted(node.orelse)
    return isinstance(node, ast.JoinedStr)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _calls_in(nodes: list[ast.AST]) -> list[ast.Call]:
    """Return the calls that make a message or an error of ours, also those of an error to its parent."""
    ours = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name in _makers()]
    inside = [node for one in ours for node in ast.walk(one) if isinstance(node, ast.Call) and _calls_parent(node)]
    return inside + [
        node for node in nodes if isinstance(node, ast.Call) and node.args and _name_of(node.func) in _makers()
    ]


def _calls_parent(call: ast.Call) -> bool:
    return bool(call.args) and ast.unparse(call.func) == "super().__init__"


@cache
def _makers() -> frozenset[str]:
    """Return ``Message`` and the names of all errors below ``BackendAIError``."""
    sources = [path.read_text() for path in (ROOT / "backendai").rglob("*.py")]
    bases = {name: {*_WORD.findall(above)} for text in sources for name, above in _CLASS.findall(text)}
    found = {"BackendAIError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found | {"Message"})
