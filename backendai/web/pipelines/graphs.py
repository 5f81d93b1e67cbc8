"""The graph of a run as SVG: a node for each step, which links to its elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from backendai.pipelines.documents import MOST_STEPS
from backendai.pipelines.graph import HEIGHT, WIDTH, Drawing, Node, bends, drawn
from backendai.pipelines.models import Run, State
from backendai.texts.translation import gettext as _
from backendai.web.pipelines.rows import StepRow

MOST_DRAWN = MOST_STEPS
MOST_BENDS = 20_000  # drawn in a second
_LONGEST = 18
_NODE = (
    '<a class="node tone-{}" href="{}"><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
    '<text x="{}" y="{}">{}</text><text class="sub" x="{}" y="{}">{}</text></a>'
)
_TONES = ((State.FAILED, "bad"), (State.RELEASED, "busy"), (State.WAITING, "wait"), (State.SUCCEEDED, "good"))


def graph_of(run: Run, rows: Sequence[StepRow]) -> SafeString:
    """Return the graph of a run of two or more steps; empty for one step, and for more than can be looked at."""
    if not 2 <= len(rows) <= MOST_DRAWN:
        return mark_safe("")
    last = [row.step.name for row in rows if row.step.is_finally]
    edges = {row.step.name: [edge.on.name for edge in row.step.edges.all()] for row in rows}
    waited_for = {on for sources in edges.values() for on in sources}
    for name in last:
        edges[name] = [one for one in edges if one not in waited_for and one not in last]
    if bends(edges) > MOST_BENDS:
        return mark_safe("")
    drawing = _layout(tuple((name, tuple(on)) for name, on in edges.items()))
    by_name = {row.step.name: row for row in rows}
    lines = format_html_join("", '<path class="edge" d="{}"/>', ((line.path,) for line in drawing.lines))
    nodes = format_html_join("", _NODE, (_node(run, node, by_name[node.name]) for node in drawing.nodes))
    return format_html(
        '<svg width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="group" aria-label="{2}">{3}{4}</svg>',
        drawing.width,
        drawing.height,
        _("Steps and what they wait for"),
        lines,
        nodes,
    )


@lru_cache(maxsize=64)
def _layout(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> Drawing:
    """Return the drawing of a graph, which does not change while its run goes on and its page asks anew."""
    return drawn(dict(edges))


def _node(run: Run, node: Node, row: StepRow) -> tuple[object, ...]:
    address = f"{reverse('web:run', args=[run.pk])}?step={node.name}"
    texts = (node.x + 10, node.y + 18, _short(node.name), node.x + 10, node.y + 35, _short(_done(row)))
    return (_tone(row), address, node.x, node.y, WIDTH, HEIGHT, *texts)


def _tone(row: StepRow) -> str:
    there = {part.state for part in row.parts}
    return next((tone for state, tone in _TONES if state in there), "over")


def _done(row: StepRow) -> str:
    well = sum(part.number for part in row.parts if part.state == State.SUCCEEDED)
    return f"✓ {well} / {row.step.size}" + (f"  ✗ {row.failed}" if row.failed else "")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
