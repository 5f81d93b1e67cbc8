"""Names that run from right to left keep their direction to themselves, wherever they are put into a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.template import Context, Engine
from django.utils.translation import override

from backendai.base.core.messages import Message
from backendai.base.texts.isolation import isolated
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext, ngettext

ROOT = Path(__file__).resolve().parents[2]
HEBREW, BEGIN, END = "שלום", "\u2068", "\u2069"
OVERRIDE = "\u202egnp.exe"


@pytest.mark.parametrize("text", ["train-1", "", "학습 세션", "naïve 🧪", "‘quoted’"])
def test_what_does_not_turn_anything_stays_as_it_is(text: str) -> None:
    assert isolated(text) is text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (HEBREW, HEBREW),
        (OVERRIDE, OVERRIDE),
        (f"{END}{OVERRIDE}", OVERRIDE),
        (f"a\u2067{HEBREW}", f"a\u2067{HEBREW}{END}"),
        (f"\u2067a{END}{END}b", f"\u2067a{END}b"),
    ],
    ids=["letters", "override", "leaves", "stays open", "leaves twice"],
)
def test_no_text_leaves_its_isolate_or_takes_the_end_of_it(text: str, kept: str) -> None:
    assert isolated(text) == f"{BEGIN}{kept}{END}"
    assert isolated(isolated(text)) == isolated(text)


def test_two_isolated_names_are_not_taken_for_one() -> None:
    two = f"{isolated(HEBREW)} {isolated(HEBREW)}"
    assert isolated(two) == f"{BEGIN}{two}{END}"


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_translated_sentence_keeps_what_is_filled_in_apart(language: str) -> None:
    with override(language):
        said = gettext("You belong to project %(name)s now.") % {"name": HEBREW}
        told = ngettext("%(number)s kernel", "%(number)s kernels", 2) % {"number": 2}
    assert f"{BEGIN}{HEBREW}{END}" in said and said.count(BEGIN) == 1
    assert BEGIN not in told and "2" in told


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_sentence_of_a_room_below_keeps_its_names_apart(language: str) -> None:
    names = [HEBREW, "a", OVERRIDE]
    sentence = Message("{number} agents of {group} ({names}).", number=3, group=HEBREW, names=names)
    with override(language):
        said = in_words(sentence)
        assert in_words(HEBREW) == HEBREW, "alone it turns nothing"
    assert f"{BEGIN}{HEBREW}{END}" in said and f"{BEGIN}{OVERRIDE}{END}" in said
    if language == "en":
        assert said.replace(BEGIN, "").replace(END, "") == sentence


@pytest.mark.parametrize(
    "template",
    [
        "{% blocktranslate %}Log of {{ name }} now{% endblocktranslate %}",
        "{% blocktranslate with name=name trimmed %} Log of {{ name }} now {% endblocktranslate %}",
        "{% blocktranslate asvar said %}Log of {{ name }} now{% endblocktranslate %}{{ said }}",
        "{% blocktranslate count number=1 %}Log of {{ name }} now{% plural %}{{ number }}{% endblocktranslate %}",
        "{% blocktranslate count number=2 %}{{ number }}{% plural %}Log of {{ name }} now{% endblocktranslate %}",
    ],
)
def test_a_sentence_of_a_template_keeps_what_is_filled_in_apart(template: str) -> None:
    assert _made(template, f"<b>{HEBREW}") == f"Log of {BEGIN}&lt;b&gt;{HEBREW}{END} now"
    assert _made(template, "<b>") == "Log of &lt;b&gt; now"


def _made(template: str, name: str) -> str:
    texts = {"page.html": f"{{% load i18n %}}{template}"}
    loader = ("django.template.loaders.locmem.Loader", texts)
    engine = Engine(loaders=[loader], libraries={"i18n": "backendai.portal.web.frame.sentences"})
    return str(engine.get_template("page.html").render(Context({"name": name})))


def test_every_sentence_with_gaps_comes_from_where_they_are_kept_apart() -> None:
    assert list(_sentences_from_elsewhere()) == []


def _sentences_from_elsewhere() -> Iterator[str]:
    """Yield the calls of Django's own translations whose text has gaps to fill."""
    for path in sorted((ROOT / "backendai").rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
            for alias in node.names
            if alias.name != "gettext_noop"
        }
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
        for call in calls:
            said = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
            if call.func.id in names and any("%(" in text for text in said):
                yield f"{path.relative_to(ROOT)}:{call.lineno}"
