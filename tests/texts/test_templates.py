"""Every template of a message has exactly the values that its gaps name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from backendai.base.core.messages import gaps
from backendai.ops.tools.texts.found import MESSAGES, texts_of_code, texts_of_templates

ROOT = Path(__file__).resolve().parents[2]
_REFUSALS = {"UserError", "NotFound", "Conflict", "NotAllowed", "StorageFull", "StorageSilent", "SignatureRefused"}
_WITHOUT_PEOPLE = {"agent", "files", "wire"}  # their refusals are for administrators of machines


_NUMBERED = re.compile(r"\{\w*_\d+\}|%\(\w*_\d+\)")


def test_each_gap_has_a_name_that_says_what_it_is() -> None:
    texts = [*texts_of_code(ROOT / "backendai", ROOT), *texts_of_templates(ROOT / "templates", ROOT)]
    numbered = [f"{one.files[0]}: {one.key.text}" for one in texts if _NUMBERED.search(one.key.text + one.plural)]
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
    for path in sorted((ROOT / "backendai").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in MESSAGES
                and node.args
            ):
                yield path.relative_to(ROOT).as_posix(), node


def test_no_refusal_of_a_person_is_an_f_string() -> None:
    found = [
        f"{path}:{call.lineno}"
        for path, call in message_calls()
        if isinstance(call.args[0], ast.JoinedStr)
        and ast.unparse(call.func) in _REFUSALS
        and path.split("/")[1] not in _WITHOUT_PEOPLE
    ]
    assert not found, "name the gaps: UserError('{name} is taken.', name=name)"
