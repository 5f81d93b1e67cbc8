"""The graph of a run as SVG: a node for each step, which links to its elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from backendai.base.texts.translation import gettext as _
from backendai.domain.pipelines.documents.document import MOST_STEPS
from backendai.domain.pipelines.documents.graph import HEIGHT, WIDTH, Drawing, Node, bends, drawn
from backendai.domain.pipelines.models import State
from backendai.domain.pipelines.presentation import QUEUED, RUNNING
from backendai.portal.web.pipelines.parts import Parts
from backendai.portal.web.pipelines.rows import TONES, StepRow

MOST_DRAWN = MOST_STEPS
MOST_BENDS = 20_000  # drawn in a second
_LONGEST, _NODES = 18, 10
_TONES = tuple((state, TONES[state]) for state in (State.FAILED, RUNNING, QUEUED, State.WAITING, State.SUCCEEDED))


def graph_of(address: str, rows: Sequence[StepRow], parts: Parts) -> SafeString:
    """Return the graph of a run as SVG; empty for one step, or for too many steps. ``address``: of the run's page."""
    if not 2 <= len(rows) <= MOST_DRAWN:
        return mark_safe("")
    last = [row.step.name for row in rows if row.step.is_finally]
    edges = {row.step.name: tuple(name for name, _when in row.step.after) for row in rows}
    waited_for = {on for sources in edges.values() for on in sources}
    for name in last:
        edges[name] = tuple(one for one in edges if one not in waited_for and one not in last)
    found = _layout(tuple(edges.items()))
    if found is None:
        return mark_safe("")
    drawing, lines = found
    by_name = {row.step.name: row for row in rows}
    nodes = [_node(address, node, by_name[node.name]) for node in drawing.nodes]
    return format_html(
        '<svg width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="group" aria-label="{2}">{3}{4}</svg>',
        drawing.width,
        drawing.height,
        _("Steps and what they wait for"),
        parts.cut("g", "run-lines", [lines], 1),
        parts.cut("g", "run-nodes", nodes, _NODES),
    )


@lru_cache(maxsize=64)
def _layout(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Drawing, SafeString] | None:
    """Return the drawing of a graph, and its edges as SVG paths.

    None for a graph with too many bends. The layout is cached while its run continues and the page reloads.
    """
    by_name = dict(edges)
    if bends(by_name) > MOST_BENDS:
        return None
    drawing = drawn(by_name)
    return drawing, format_html_join("", '<path class="edge" d="{}"/>', ((line.path,) for line in drawing.lines))


def _node(address: str, node: Node, row: StepRow) -> str:
    """Return a step as an SVG link. Names of steps need no escaping, as they are letters, digits and dashes."""
    left, x, y = node.x + 10, node.x, node.y
    return (
        f'<a class="node tone-{_tone(row)}" href="{address}?step={node.name}">'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{left}" y="{y + 18}">{_short(node.name)}</text>'
        f'<text class="sub" x="{left}" y="{y + 35}">{_short(_done(row))}</text></a>'
    )


def _tone(row: StepRow) -> str:
    return next((tone for state, tone in _TONES if row.counts[state]), "over")


def _done(row: StepRow) -> str:
    failed = row.counts[State.FAILED]
    return f"✓ {row.counts[State.SUCCEEDED]} / {row.step.size}" + (f"  ✗ {failed}" if failed else "")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
