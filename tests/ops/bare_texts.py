"""Texts of a template, a script or the code of pages that no translation reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser

from django.template.base import Lexer, Token, TokenType

# Names and signs that are the same in every language.
SAME_EVERYWHERE = {"Backend.AI", "CSV", "ID", "GPU", "CPU", "AMD", "NVIDIA", "JSON", "UTC", "SSH", "IP", "URL", "KiB"}
SAME_EVERYWHERE |= {"Linux"}
_SAID = {"aria-label", "title", "placeholder", "alt", "data-label", "data-confirm", "summary", "label"}
_NOT_PROSE = {"script", "style", "pre", "svg", "code", "kbd", "samp"}
_LETTERS = re.compile(r"[A-Za-z][\w.'-]*[A-Za-z]")
_OWN_WORDS = {"translate", "trans", "url", "static", "icon", "load", "extends", "if", "elif", "block", "csrf_token"} | {
    "render_attrs"
}
_SENTENCE = re.compile(
    r"""(?<!_\()(?<![\w(])"([^"]*[A-Za-z]{2,} [^"]*)"|(?<!_\()(?<![\w(])'([^']*[A-Za-z]{2,} [^']*)'"""
)
_DEFAULT = re.compile(r"""\|(?:default|default_if_none|yesno):["']([^"']*(?:[A-Z]|[a-z] [a-z])[^"']*)["']""")
_SHOWN = {"label", "help_text", "verbose_name", "empty_label", "empty_text", "title", "text", "question", "lead"}


def bare_in_template(source: str) -> list[str]:
    """Return the texts that stand in a template outside of translation tags."""
    reader = _Reader()
    found = []
    inside = ""
    for token in Lexer(source).tokenize():
        word = token.contents.split()[0] if token.token_type == TokenType.BLOCK else ""
        if inside:
            inside = "" if word == f"end{inside}" else inside
        elif word in ("blocktranslate", "blocktrans", "comment"):
            inside = word
        elif token.contents == "block main_class":
            inside = "block"
        elif token.token_type == TokenType.TEXT:
            reader.feed(token.contents)
        else:
            found += _arguments(token, word)
            reader.feed("")
    reader.close()
    return [*reader.found, *found]


def bare_in_script(source: str) -> list[str]:
    """Return the literals of a script that are prose: more than one word, with no sign that code would have."""
    without_comments = re.sub(r"(?m)(?:^|\s)//.*$|/\*.*?\*/", "", source)
    literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`', without_comments)
    return [text for pair in literals for text in pair if _is_prose(text)]


def bare_in_code(tree: ast.Module) -> Iterator[str]:
    """Return the texts that a module of the pages gives to forms, columns and messages without marking them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and "AppConfig" in map(ast.unparse, node.bases):
            continue
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _SHOWN:
                    yield from _literal(keyword.value)
            if ast.unparse(node.func).startswith("messages.") and len(node.args) > 1:
                yield from _literal(node.args[1])
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
                    targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                    if any(isinstance(one, ast.Name) and one.id in _SHOWN for one in targets):
                        yield from _literal(line.value)


class _Reader(HTMLParser):
    """Reads the HTML that is left when the template's own tags are taken out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _NOT_PROSE:
            self._within.append(tag)
        self.found += [value for name, value in attrs if name in _SAID and value and _says_something(value)]

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            self._within.remove(tag)

    def handle_data(self, data: str) -> None:
        if not self._within and _says_something(data):
            self.found.append(" ".join(data.split()))


def _says_something(text: str) -> bool:
    return bool({word for word in _LETTERS.findall(text)} - SAME_EVERYWHERE)


def _arguments(token: Token, word: str) -> list[str]:
    if token.token_type == TokenType.COMMENT or word in _OWN_WORDS:
        return []
    text = token.contents
    if word == "include":
        text = text.split(" with ", 1)[1] if " with " in text else ""
    return [one for pair in _SENTENCE.findall(text) for one in pair if one] + _DEFAULT.findall(text)


def _is_prose(text: str) -> bool:
    text = re.sub(r"\$\{[^}]*\}", "", text)
    reads_so = re.search(r"^[A-Z].*[A-Za-z]{2,} [a-z]{2,}|[A-Za-z]{2,} [a-z]{2,}.*[.?!…]$|^[A-Z][a-z]+ [a-z]+$", text)
    return bool(reads_so) and not re.search(r"[<>=\[\]{};#/]|: ", text)


def _literal(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _says_something(node.value):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        if _says_something(text):
            yield text
    if isinstance(node, ast.IfExp):
        yield from _literal(node.body)
        yield from _literal(node.orelse)
