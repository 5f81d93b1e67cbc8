"""Every text of the interface can be translated, and each translation fills in what its text does."""

from __future__ import annotations

import ast
import gettext
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest
from django.conf import settings

from backendai.base.core.messages import gaps
from backendai.ops.tools.texts.catalogue import Catalogue, Entry, Key, mo_bytes, po_text, read_po, renewed
from backendai.ops.tools.texts.files import languages, po_path
from backendai.ops.tools.texts.found import placeholders, texts_of_module, texts_of_template
from tests.ops.bare_texts import bare_in_code, bare_in_script, bare_in_template

ROOT = Path(settings.BASE_DIR)


@cache
def catalogue(language: str) -> Catalogue:
    return read_po(po_path(language))


def files(folder: str, *endings: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in endings)


def test_no_template_script_or_form_says_something_that_cannot_be_translated() -> None:
    found = {path: bare_in_template(path.read_text()) for path in files("templates", ".html", ".txt")}
    found |= {path: bare_in_script(path.read_text()) for path in files("static/js", ".js")}
    found |= {path: list(bare_in_code(ast.parse(path.read_text()))) for path in files("backendai/portal/web", ".py")}
    bare = {path.relative_to(ROOT).as_posix(): said for path, said in found.items() if said}
    assert not bare, "mark it: docs/architecture.md says how"


@pytest.mark.parametrize("language", languages())
def test_a_translation_fills_in_what_its_text_does(language: str) -> None:
    for entry in catalogue(language).entries.values():
        for text in filter(None, entry.translations):
            assert placeholders(text) in [placeholders(entry.key.text), placeholders(entry.plural or entry.key.text)]
            assert gaps(text) <= gaps(entry.key.text), entry.key.text
            assert text.count("<") == entry.key.text.count("<"), entry.key.text


@pytest.mark.parametrize("language", languages())
def test_what_django_reads_is_what_the_translators_wrote(language: str) -> None:
    path, said = po_path(language), catalogue(language)
    assert path.with_suffix(".mo").read_bytes() == mo_bytes(said), "run manage.py texts"
    assert po_text(said) == path.read_text(), "run manage.py texts"


def test_it_finds_what_templates_and_code_mark() -> None:
    template = (
        '{% load i18n %}{% translate "One" %}{% translate "Main" context "navigation" %}{{ x|default:_("Two") }}'
        "{% blocktranslate trimmed count number=n %}\n {{ number }} (one)\n{% plural %}{{ number }} more"
        "{% endblocktranslate %}"
    )
    found = {entry.key: entry.plural for entry in texts_of_template(template)}
    assert found == {
        Key("One"): "",
        Key("Main", "navigation"): "",
        Key("Two"): "",
        Key("%(number)s (one)"): "%(number)s more",
    }
    code = (
        "from django.utils.translation import gettext as _, ngettext, pgettext_lazy as _p\n"
        "_('a %(b)s' % {})\n_('a' 'b')\n_p('c', 'd')\nngettext('e', 'f', 2)\n_(x)\ngettext('not ours')"
    )
    assert {entry.key: entry.plural for entry in texts_of_module(ast.parse(code))} == {
        Key("ab"): "",
        Key("d", "c"): "",
        Key("e"): "f",
    }


def test_a_catalogue_survives_being_written_and_django_reads_all_of_it() -> None:
    entries = [
        Entry(Key('Say "hi"\n\tthere \\ ' + "word " * 40), translations=("안녕 " * 40,), files=("a.html", "b.py")),
        Entry(Key("May", "month"), translations=("5월",)),
        Entry(Key("%(n)s day"), "%(n)s days", ("%(n)s일",), flags=frozenset({"python-format"})),
        Entry(Key("doubtful"), translations=("?",), flags=frozenset({"fuzzy"})),
        Entry(Key("new")),
    ]
    header = "Content-Type: text/plain; charset=UTF-8\nLanguage: ko\nPlural-Forms: nplurals=1; plural=0;\n"
    before = Catalogue("# Words of the field", header, {entry.key: entry for entry in entries})
    path = Path(settings.DATA_DIR) / "round-trip.po"
    path.write_text(po_text(before))
    after = read_po(path)
    assert after == before
    read = gettext.GNUTranslations(BytesIO(mo_bytes(after)))
    assert read.gettext(entries[0].key.text) == entries[0].translations[0]
    assert read.pgettext("month", "May") == "5월" and read.gettext("May") == "May"
    assert read.ngettext("%(n)s day", "%(n)s days", 3) == "%(n)s일"
    assert (read.gettext("doubtful"), read.gettext("new")) == ("doubtful", "new")
    kept = renewed(after, {Key("May", "month"): Entry(Key("May", "month")), Key("fresh"): Entry(Key("fresh"))})
    assert {key.text: entry.translations for key, entry in kept.entries.items()} == {"May": ("5월",), "fresh": ()}


@pytest.mark.parametrize(
    ("source", "bare"),
    [
        ("<p>Hello there</p>", ["Hello there"]),
        ('<p title="More">{% translate "Hello" %} {{ name }}</p>', ["More"]),
        ('<p {% if x %}hidden{% endif %} class="a b">{{ x }} · 4 %</p><script>let a = 1;</script>', []),
        ("{% blocktranslate %}Hello {{ name }}{% endblocktranslate %}{# why #}{% comment %}so{% endcomment %}", []),
        ('{% include "a b.html" with what="access key" %}{{ x|default:"None" }}', ["access key", "None"]),
        ('{% include "a.html" with what=_("access key") %}{{ x|default:_("None") }}', []),
        ('<b>{% if a == "so it is" %}{% translate "Two words" %}{% endif %}</b><code>ls -l</code>', []),
    ],
)
def test_it_sees_bare_texts_in_templates(source: str, bare: list[str]) -> None:
    assert bare_in_template(source) == bare


def test_it_sees_bare_texts_in_scripts_and_code() -> None:
    script = 'const a = "Try it again";\n// "not this one here"\nquery("#id .name"); b.textContent = `Gone for ${x}`;'
    assert bare_in_script(script) == ["Try it again", "Gone for ${x}"]
    code = (
        "class A:\n  title = 'Users'\n  url = 'users'\n  name = Field(label='Name', help_text=_('x'))\n"
        "messages.success(request, f'{a} is gone.')\nField(label='CPU')"
    )
    assert sorted(bare_in_code(ast.parse(code))) == [" is gone.", "Name", "Users"]
