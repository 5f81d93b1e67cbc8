"""Renders the constant parts of templates once for each language.

Half of a page is texts, addresses and icons between a few values. The loader joins each run of constant nodes into one,
whose text every process keeps. Translations, routes and static files do not change while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, cast

from django.template import Context, Node, NodeList, Template
from django.template.base import FilterExpression, TextNode, TokenType, render_value_in_context
from django.template.defaulttags import CommentNode, LoadNode, URLNode
from django.template.library import SimpleNode
from django.template.loaders import base, cached
from django.templatetags.i18n import BlockTranslateNode, LanguageNode, TranslateNode
from django.templatetags.static import StaticNode
from django.urls import get_script_prefix, get_urlconf
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext, ngettext

from backendai.base.texts.isolation import isolated
from backendai.portal.web.frame.time_words import time_words
from backendai.portal.web.templatetags.portal import icon

_TAGS = frozenset({icon, time_words})  # tags of ours whose text depends on their arguments and the language alone
_KEY = "key of constant parts"


class ConstantPart(Node):
    """Template nodes that do not depend on the context, rendered once for each language."""

    child_nodelists = ()

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = NodeList(nodes)
        self._texts: dict[object, str] = {}
        self.token, self.origin = nodes[0].token, nodes[0].origin

    def render(self, context: Context) -> str:
        """Return the text of the nodes."""
        key = _key_of(context)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = self._nodes.render(context)
        return text


class ConstantName(Node):
    """A constant text that is stored under a name in the context, as by ``asvar``."""

    child_nodelists = ()

    def __init__(self, node: Node, name: str) -> None:
        self._node, self._name = node, name
        self._texts: dict[object, Any] = {}
        self.token, self.origin = node.token, node.origin

    def render(self, context: Context) -> str:
        """Store the text under its name in the context; return an empty text."""
        key = _key_of(context)
        if key not in self._texts:
            self._node.render(context)
            self._texts[key] = context[self._name]
        context[self._name] = self._texts[key]
        return ""


class Sentence(Node):
    """A translated sentence with values, whose translation is looked up once for each language.

    A value in the other writing direction does not change the direction of the rest.
    """

    child_nodelists = ()

    def __init__(self, node: BlockTranslateNode) -> None:
        self._node = node
        self._source, self._names = node.render_token_list(node.singular)
        self._plural, more = node.render_token_list(node.plural) if node.plural else ("", [])
        self._names += more
        self._number = node.countervar or ""
        self._texts: dict[object, str] = {}
        self.token, self.origin = node.token, node.origin

    def render(self, context: Context) -> str:
        """Return the sentence with its values, or store it under its name.

        Unusual cases are left to Django's own node.
        """
        named = {name: value.resolve(context) for name, value in self._node.extra_context.items()}
        if self._plural and self._node.counter:
            named[self._number] = self._node.counter.resolve(context)
        filled = {}
        for name in self._names:
            if name not in named and name not in context:
                return self._node.render(context)
            value = named[name] if name in named else context[name]
            filled[name] = isolated(render_value_in_context(value, context))
        try:
            text = self._translated(context, named) % filled
        except (KeyError, TypeError, ValueError):
            return self._node.render(context)
        if not self._node.asvar:
            return text
        context[self._node.asvar] = SafeString(text)
        return ""

    def _translated(self, context: Context, named: dict[str, Any]) -> str:
        if self._plural:
            return ngettext(self._source, self._plural, named[self._number])
        key = _key_of(context)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = gettext(self._source)
        return text


class _Joining(base.Loader):
    """Loads a template and joins its constant parts."""

    def get_template(self, template_name: str, skip: Any = None) -> Template:
        """Return the template with joined parts."""
        template = super().get_template(template_name, skip)
        join(template.nodelist)
        return template


class Loader(cached.Loader, _Joining):
    """A cached template loader that joins constant parts."""


def join(nodes: NodeList) -> None:
    """Replace each run of constant nodes with one node, also inside other nodes."""
    joined: list[Node] = []
    for constant, run in groupby(nodes, _is_constant):
        found = list(run)
        if not constant:
            joined += [_with_joined_parts(node) for node in found]
        elif all(isinstance(node, TextNode) for node in found):
            joined += found
        else:
            joined.append(ConstantPart(found))
    nodes[:] = joined


def _with_joined_parts(node: Node) -> Node:
    if isinstance(node, TranslateNode | BlockTranslateNode) and node.asvar and _says_the_same(node):
        return ConstantName(node, node.asvar)
    if isinstance(node, BlockTranslateNode) and node.message_context is None:
        return Sentence(node)
    if not isinstance(node, LanguageNode):
        for part in _parts_of(vars(node).values()):
            join(part)
    return node


def _parts_of(values: Any) -> Iterator[NodeList]:
    for value in values:
        if isinstance(value, NodeList):
            yield value
        elif isinstance(value, list | tuple):  # the branches of an if
            yield from _parts_of(value)


def _is_constant(node: Node) -> bool:
    if isinstance(node, TextNode | CommentNode | LoadNode):
        return True
    if isinstance(node, TranslateNode | BlockTranslateNode):
        return not node.asvar and _says_the_same(node)
    if isinstance(node, StaticNode):
        return node.varname is None and _is_literal(node.path)
    if isinstance(node, URLNode):
        return not (node.asvar or node.args or node.kwargs) and _is_literal(node.view_name)
    if type(node) is SimpleNode:
        return node.func in _TAGS and not (node.target_var or node.kwargs) and all(map(_is_literal, node.args))
    return False


def _says_the_same(node: TranslateNode | BlockTranslateNode) -> bool:
    if node.message_context is not None and not _is_literal(node.message_context):
        return False
    if isinstance(node, TranslateNode):
        return _is_literal(node.filter_expression)
    return not (node.extra_context or node.plural) and all(
        token.token_type is TokenType.TEXT for token in node.singular
    )


def _is_literal(expression: FilterExpression) -> bool:
    return not expression.filters and (not expression.is_var or expression.var.lookups is None)


def _key_of(context: Context) -> object:
    """Return the key on which the text of a constant part depends, such as the language.

    Computed once for each rendering.
    """
    kept = cast(Any, context.render_context).dicts[0]
    key = kept.get(_KEY)
    if key is None:
        key = kept[_KEY] = (get_language(), get_script_prefix(), get_urlconf())
    return key if context.autoescape else (key, False)
