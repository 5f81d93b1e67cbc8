"""A page as a browser takes it: without the white space that HTML ignores, wherever a template breaks its lines."""

from __future__ import annotations

import re
from typing import Any

_BLOCKS = (
    "!DOCTYPE|article|aside|body|br|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]|head|header|html|"
    "legend|li|link|main|meta|nav|ol|option|p|script|section|select|style|summary|svg|table|tbody|td|template|th|thead|title|tr|ul"
)
_INLINE_BLOCKS = "button|meter"  # only their own first and last white space is ignored
_END_OF_TAG = re.compile(r" (?=/?>)")
_EDGE = re.compile(
    rf" ?(</?(?:{_BLOCKS})\b[^>]*>) ?|(<(?:{_INLINE_BLOCKS})\b[^>]*>) | (</(?:{_INLINE_BLOCKS})>)", re.IGNORECASE
)


def markup(answer: Any) -> str:
    """Return the text of a response with one space for each white space, and none where a browser shows none."""
    line = _END_OF_TAG.sub("", " ".join(answer.content.decode().split()))
    return _EDGE.sub(lambda found: "".join(filter(None, found.groups())), line)


def sent(form: Any, **over: Any) -> dict[str, Any]:
    """Return what a browser would send of the form, with these fields changed."""
    values: dict[str, Any] = {}
    for name in form.fields:
        value = form[name].value()
        if value is True:
            values[name] = "on"
        elif value is not None and value is not False:
            values[name] = value
    return {name: value for name, value in (values | over).items() if value is not None}
