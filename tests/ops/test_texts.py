"""Every text of the interface can be translated, and each translation fills in what its text does."""

from __future__ import annotations

import ast
import gettext
import re
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from django.conf import settings

from backendai.base.core.messages import gaps
from backendai.ops.tools.texts.files import bring_up, catalogue_in, languages, mo_bytes, po_bytes, po_path
from backendai.ops.tools.texts.found import texts_of_module, texts_of_template
from tests.ops.bare_texts import bare_in_code, bare_in_script, bare_in_template

ROOT = Path(settings.BASE_DIR)
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sdrif]")


@cache
def catalogue(language: str) -> Catalog:
    return catalogue_in(po_path(language))


def placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text.replace("%%", "")))


def forms(said: str | tuple[str, ...]) -> list[str]:
    return [said] if isinstance(said, str) else [*said]


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
    for message in catalogue(language):
        texts = forms(message.id)
        for said in filter(None, forms(message.string) if message.id else []):
            assert placeholders(said) in map(placeholders, texts)
            assert gaps(said) <= gaps(texts[0]), texts[0]
            assert said.count("<") == texts[0].count("<"), texts[0]


@pytest.mark.parametrize("language", languages())
def test_what_django_reads_is_what_the_translators_wrote(language: str) -> None:
    path, said = po_path(language), catalogue(language)
    assert path.with_suffix(".mo").read_bytes() == mo_bytes(said), "run manage.py texts"
    assert po_bytes(said) == path.read_bytes(), "run manage.py texts"


def test_it_finds_what_templates_and_code_mark() -> None:
    template = (
        '{% load i18n %}{% translate "One" %}{% translate "Main" context "navigation" %}{{ x|default:_("Two") }}'
        "{% blocktranslate trimmed count number=n %}\n {{ number }} (one)\n{% plural %}{{ number }} more"
        "{% endblocktranslate %}"
    )
    assert found_in(template, texts_of_template) == {
        ("One", None),
        ("Main", "navigation"),
        ("Two", None),
        (("%(number)s (one)", "%(number)s more"), None),
    }
    code = (
        "from django.utils.translation import gettext as _, ngettext, pgettext_lazy as _p\n"
        "_('a %(b)s' % {})\n_('a' 'b')\n_p('c', 'd')\nngettext('e', 'f', 2)\n_(x)\ngettext('not ours')\n"
        "def f():\n    text = 'g' if x else 'h'\n    raise errors.UserError(text, i=Message('j'))\n"
    )
    assert found_in(code, texts_of_module) == {
        ("ab", None),
        ("d", "c"),
        (("e", "f"), None),
        ("g", None),
        ("h", None),
        ("j", None),
    }


def found_in(source: str, method: object) -> set[object]:
    return {(text, context) for _, text, _, context in extract(method, BytesIO(source.encode()))}  # type: ignore[arg-type]


def test_a_catalogue_keeps_its_translations_and_django_reads_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BASE_DIR", tmp_path)
    long = 'Say "hi"\n\tthere \\ ' + "word " * 40
    sources, written, fewer = Catalog(), Catalog("ko", header_comment="# Words of the field", fuzzy=False), Catalog()
    for text in (long, ("%(n)s day", "%(n)s days"), "doubtful", "new"):
        sources.add(text, locations=[("a.html", 0), ("b.py", 0)])
    sources.add("May", context="month")
    assert len(bring_up("ko", sources)) == 5
    written.add(long, "안녕 " * 40)
    written.add(("%(n)s day", "%(n)s days"), ("%(n)s일",))
    written.add("May", "5월", context="month")
    written.add("doubtful", "?", flags=["fuzzy"])
    po_path("ko").write_bytes(po_bytes(written))
    assert [message.id for message in bring_up("ko", sources)] == ["doubtful", "new"]
    with po_path("ko").with_suffix(".mo").open("rb") as file:
        read = gettext.GNUTranslations(file)
    assert read.gettext(long) == "안녕 " * 40
    assert read.pgettext("month", "May") == "5월" and read.gettext("May") == "May"
    assert read.ngettext("%(n)s day", "%(n)s days", 3) == "%(n)s일"
    assert (read.gettext("doubtful"), read.gettext("new")) == ("doubtful", "new")
    fewer.add("May", context="month")
    fewer.add("fresh")
    assert [message.id for message in bring_up("ko", fewer)] == ["fresh"]
    assert po_path("ko").read_text().startswith("# Words of the field") and "%(n)s" not in po_path("ko").read_text()


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
