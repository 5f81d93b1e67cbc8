"""Django's template library ``i18n``, whose sentences keep the writing direction of their values apart."""

from __future__ import annotations

from typing import Any

from django.template import Context, Library, Node
from django.template.base import Parser, Token, render_value_in_context
from django.templatetags import i18n
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from backendai.base.texts.isolation import isolated

register = Library()
register.tags.update(i18n.register.tags)
register.filters.update(i18n.register.filters)


class Sentence(Node):
    """A translated sentence with values. A value in the other writing direction does not turn the rest around."""

    child_nodelists = ()

    def __init__(self, node: i18n.BlockTranslateNode) -> None:
        self._node = node
        self._source, self._names = node.render_token_list(node.singular)
        self._plural, more = node.render_token_list(node.plural) if node.plural else ("", [])
        self._names += more

    def render(self, context: Context) -> str:
        """Return the sentence with its values, or store it under its name. Django's own node does unusual cases."""
        node = self._node
        named = {name: value.resolve(context) for name, value in node.extra_context.items()}
        if self._plural and node.counter:
            named[node.countervar or ""] = node.counter.resolve(context)
        if any(name not in named and name not in context for name in self._names):
            return node.render(context)
        values = {name: named[name] if name in named else context[name] for name in self._names}
        filled = {name: isolated(render_value_in_context(value, context)) for name, value in values.items()}
        try:
            text = self._translated(named) % filled
        except (KeyError, TypeError, ValueError):  # a translation with other gaps
            return node.render(context)
        if not node.asvar:
            return text
        context[node.asvar] = SafeString(text)
        return ""

    def _translated(self, named: dict[str, Any]) -> str:
        if self._plural:
            return ngettext(self._source, self._plural, named[self._node.countervar or ""])
        return gettext(self._source)


@register.tag("blocktranslate")
@register.tag("blocktrans")
def sentence(parser: Parser, token: Token) -> Node:
    """Compile a ``blocktranslate``; one with a context of its own stays Django's."""
    node: i18n.BlockTranslateNode = i18n.do_block_translate(parser, token)
    return node if node.message_context is not None else Sentence(node)
