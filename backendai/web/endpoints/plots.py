"""The plots of an endpoint's page: columns of a small picture, drawn by the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils import timezone

from backendai.serving.showing import Point
from backendai.texts.translation import gettext as _

WIDTH, HEIGHT, _COLUMNS = 480, 60, 120


@dataclass(frozen=True, slots=True)
class Column:
    """One column, with its sentence."""

    x: float
    y: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its highest and its newest value in words."""

    name: str
    most: str
    now: str
    columns: tuple[Column, ...]
    width: float = WIDTH / _COLUMNS


def plots_of(points: Sequence[Point]) -> list[Plot]:
    """Return requests, waiting and latency of the last hour."""
    kept = _merged(points)
    return [
        _plot(_("Requests per second"), kept, lambda one: one.requests, "{:.1f}"),
        _plot(_("Requests under way and waiting"), kept, lambda one: float(one.open + one.queued), "{:.0f}"),
        _plot(_("Slowest of twenty answers"), kept, lambda one: one.p95, "{:g} s"),
    ]


def _merged(points: Sequence[Point]) -> Sequence[Point]:
    return points[-_COLUMNS:] if len(points) <= _COLUMNS else points[:: -(-len(points) // _COLUMNS)]


def _plot(name: str, points: Sequence[Point], value: Callable[[Point], float | None], words: str) -> Plot:
    values = [value(one) for one in points]
    known = [one for one in values if one is not None]
    most = max(known, default=0.0)
    wide = WIDTH / _COLUMNS
    columns = []
    for number, (point, one) in enumerate(zip(points, values, strict=True)):
        height = HEIGHT * (one or 0.0) / most if most else 0.0
        said = words.format(one) if one is not None else _("no answer")
        columns.append(
            Column(number * wide, HEIGHT - height, height, f"{timezone.localtime(point.at):%H:%M:%S}: {said}")
        )
    now = words.format(known[-1]) if known else "–"
    return Plot(name, words.format(most), now, tuple(columns))
