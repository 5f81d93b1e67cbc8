"""Joined templates and quick widgets: to the letter what Django makes of the same."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates
from django.template import Context, Engine, NodeList
from django.urls import set_script_prefix
from django.utils import translation
from django.utils.safestring import mark_safe

from backendai.portal.web.frame.constant_parts import ConstantPart
from backendai.portal.web.frame.quick_widgets import QuickWidgets

PARTS = {
    "base.html": "<title>{% block title %}None{% endblock %}</title>{% include 'part.html' %}",
    "part.html": (
        "{% load i18n static portal %}<img src=\"{% static 'img/mark.svg' %}\"> {% url 'web:sessions' %}"
        "{% icon 'x' %}{% comment %}no{% endcomment %}{% translate 'Sessions' %} {{ name }}{% time_words %}"
    ),
    "page.html": (
        "{% extends 'base.html' %}{% load i18n portal %}{% block title %}{% translate 'Cancel' as word %}{{ word }}"
        "{% blocktranslate asvar more trimmed %}  No folder\nis mounted  {% endblocktranslate %}{{ more }}"
        "{% for each in names %}{% if each == 'a' %}{% translate 'Previous' %}<br>{% elif each %}{% translate 'Next' %}"
        "{% else %}{% blocktranslate %}Launch{% endblocktranslate %}{% endif %}"
        "{% blocktranslate with name=each %}for <bdi>{{ name }}</bdi>{% endblocktranslate %}{{ each|escape }}"
        "{% blocktranslate %}for <bdi>{{ name }}</bdi>{% endblocktranslate %}"
        "{% blocktranslate %}{{ gone }}?{% endblocktranslate %}"
        "{% blocktranslate count number=each|length %}{{ number }} agent{% plural %}{{ number }} agents"
        "{% endblocktranslate %}{% translate each %}{% endfor %}{% autoescape off %}{{ name }}"
        "{% url 'web:sessions' %}{% endautoescape %}{% language 'en' %}{% translate 'Cancel' %}{% endlanguage %}"
        "{% translate 'Main' context 'navigation' %}{% translate '100%% sure' %}{% endblock %}"
    ),
}
VALUES = {"name": "<b>", "names": ["a", "", "Cancel"]}


def engine(loader: str) -> Engine:
    libraries = {
        "i18n": "django.templatetags.i18n",
        "static": "django.templatetags.static",
        "portal": "backendai.portal.web.templatetags.portal",
    }
    return Engine(loaders=[(loader, [("django.template.loaders.locmem.Loader", PARTS)])], libraries=libraries)


def made(found: Engine, language: str) -> str:
    with translation.override(language):
        return str(found.get_template("page.html").render(Context(VALUES)))


def test_a_joined_template_says_the_same_in_every_language() -> None:
    plain, joined = (
        engine("django.template.loaders.cached.Loader"),
        engine("backendai.portal.web.frame.constant_parts.Loader"),
    )
    for language in ("en", "ko", "en", "ko"):
        assert made(joined, language) == made(plain, language)
    assert made(joined, "en") != made(joined, "ko")


def test_what_is_constant_is_one_piece() -> None:
    nodes: NodeList = engine("backendai.portal.web.frame.constant_parts.Loader").get_template("part.html").nodelist
    assert [isinstance(node, ConstantPart) for node in nodes] == [True, False, True]


def test_addresses_follow_the_place_where_the_portal_is_mounted() -> None:
    joined = engine("backendai.portal.web.frame.constant_parts.Loader")
    before = made(joined, "en")
    try:
        set_script_prefix("/lab/")
        assert "/lab/" in made(joined, "en")
    finally:
        set_script_prefix("/")
    assert made(joined, "en") == before


class Everything(forms.Form):
    """Every kind of input that the portal has."""

    text = forms.CharField(widget=forms.TextInput(attrs={"placeholder": '"<x>"', "data-safe": mark_safe("&amp;")}))
    number = forms.IntegerField(min_value=1, max_value=2000)
    email = forms.EmailField(required=False)
    secret = forms.CharField(widget=forms.PasswordInput(attrs={"autofocus": True, "hidden": False}))
    many_lines = forms.CharField(widget=forms.Textarea(attrs={"rows": 3}))
    moment = forms.DateTimeField(required=False)
    box = forms.BooleanField()
    hidden = forms.CharField(widget=forms.HiddenInput)
    choice = forms.ChoiceField(choices=[("", "none"), ("a&b", "<A>"), ("More", [("c", "C"), ("d", "D")])])
    several = forms.MultipleChoiceField(choices=[(1, "one"), (2, "two")])
    radio = forms.ChoiceField(choices=[("a", "<A>"), ("b", "B")], widget=forms.RadioSelect)
    boxes = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], widget=forms.CheckboxSelectMultiple)


FILLED: dict[str, Any] = {
    "text": "<a> & \"b\" 'c'",
    "number": 1234,
    "email": "a@b.c",
    "many_lines": "<x>\n\ny",
    "moment": datetime(2026, 1, 2, 3, 4),
    "box": True,
    "hidden": mark_safe("<i>"),
    "choice": "d",
    "several": [2],
    "radio": "a",
    "boxes": ["b"],
}


@pytest.mark.parametrize("initial", [{}, FILLED], ids=["empty", "filled"])
@pytest.mark.parametrize("name", list(Everything.base_fields))
def test_quick_widgets_are_those_of_django(name: str, initial: dict[str, Any]) -> None:
    quick, plain = (
        Everything(initial=initial, renderer=renderer)[name] for renderer in (QuickWidgets(), DjangoTemplates())
    )
    assert quick.as_widget(attrs={"class": "x"}) == plain.as_widget(attrs={"class": "x"})
    quicks, plains = list(quick), list(plain)
    assert [each.tag() for each in quicks] == [each.tag() for each in plains]
    assert [each.tag(wrap_label=True) for each in quicks] == [each.tag(wrap_label=True) for each in plains]
