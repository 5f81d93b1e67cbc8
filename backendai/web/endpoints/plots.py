"""The plots of an endpoint's page: columns of a small picture, drawn by the server."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from backendai.serving.models import ScalingRecord
from backendai.serving.showing import Point
from backendai.texts.messages import in_words
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
class Mark:
    """A decision that changed the number of replicas, at its place on the plots."""

    x: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its highest and its newest value in words."""

    name: str
    most: str
    now: str
    columns: tuple[Column, ...]
    marks: tuple[Mark, ...] = ()
    width: float = WIDTH / _COLUMNS


def plots_of(points: Sequence[Point], records: Sequence[ScalingRecord] = ()) -> list[Plot]:
    """Return requests, waiting and latency of the last hour, with the decisions that changed the number of replicas."""
    kept = _merged(points)
    marks = _marks(kept, records)
    return [replace(one, marks=marks) for one in _plots(kept)]


def _plots(kept: Sequence[Point]) -> list[Plot]:
    return [
        _plot(_("Requests per second"), kept, lambda one: one.requests, "{:.1f}"),
        _plot(_("Requests in progress and waiting"), kept, lambda one: float(one.open + one.queued), "{:.0f}"),
        _plot(_("Slowest of twenty answers"), kept, lambda one: one.p95, "{:g} s"),
    ]


def _marks(points: Sequence[Point], records: Sequence[ScalingRecord]) -> tuple[Mark, ...]:
    if not points:
        return ()
    places = [one.at for one in points]
    found = []
    for one in records:
        if one.before != one.after and places[0] <= one.created_at <= places[-1]:
            at = f"{timezone.localtime(one.created_at):%H:%M:%S}"
            x = bisect_left(places, one.created_at) * WIDTH / _COLUMNS
            found.append(Mark(x, f"{at}: {one.before} → {one.after}. {in_words(one.message)}"))
    return tuple(found)


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
