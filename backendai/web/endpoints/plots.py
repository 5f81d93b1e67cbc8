"""The plots of an endpoint's page: columns of small SVG pictures, drawn by the server."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone

from backendai.serving.models import ScalingRecord
from backendai.serving.replaying import Yesterday
from backendai.serving.showing import Point
from backendai.texts.messages import in_words
from backendai.texts.translation import gettext as _
from backendai.texts.translation import ngettext

WIDTH, HEIGHT, COLUMNS = 480, 60, 120
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Column:
    """One column, with its sentence for the tooltip."""

    x: float
    y: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A decision that changed the number of replicas, with its position on the plots."""

    x: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, with its highest and newest value as text."""

    name: str
    most: str
    now: str
    columns: tuple[Column, ...]
    marks: tuple[Mark, ...] = ()
    width: float = WIDTH / COLUMNS


def plots_of(
    points: Sequence[Point],
    until: datetime,
    changes: Sequence[ScalingRecord] = (),
    accelerators: Sequence[tuple[datetime, float]] = (),
    desired: int = 0,
) -> list[Plot]:
    """Return the plots of the hour that ends at ``until``.

    They are requests, waiting, latency, replicas, and accelerators if there are any. Each marks the decisions that
    changed the number of replicas (``changes``, the oldest first).
    """
    kept = _by_place(points, until)
    plots = [
        _plot(_("Requests per second"), kept, [one.requests for one in kept.values()], "{:.2f}"),
        _plot(_("Requests in progress and waiting"), kept, [one.open + one.queued for one in kept.values()], "{:.1f}"),
        _plot(_("Latency, 95th percentile"), kept, [one.p95 for one in kept.values()], "{:g} s"),
    ]
    if kept:
        wanted = [_wanted_at(one.at, changes, desired) for one in kept.values()]
        plots.append(_plot(_("Replicas wanted"), kept, wanted, "{:.0f}"))
    if kept and accelerators:
        used = _beside(list(kept.values()), accelerators)
        plots.append(_plot(_("Use of the accelerators"), kept, used, "{:.0f} %"))
    marks = _marks(changes, until)
    return [replace(one, marks=marks) for one in plots]


def plot_of_replay(tried: Yesterday) -> Plot:
    """Return a plot of the replicas that the tried limits would have given yesterday, by minute."""
    kept = tried.minutes[:: max(1, -(-len(tried.minutes) // COLUMNS))]
    wide, most = WIDTH / COLUMNS, max(tried.most, 1)
    columns = tuple(
        Column(
            number * wide,
            HEIGHT - HEIGHT * one.desired / most,
            HEIGHT * one.desired / most,
            ngettext("%(at)s: 1 replica, load %(load)s", "%(at)s: %(replicas)s replicas, load %(load)s", one.desired)
            % {"at": f"{timezone.localtime(one.at):%H:%M}", "replicas": one.desired, "load": f"{one.load:.1f}"},
        )
        for number, one in enumerate(kept)
    )
    return Plot(_("Replicas that there would have been"), str(tried.most), "", columns)


def _wanted_at(at: datetime, changes: Sequence[ScalingRecord], desired: int) -> float:
    """Return the desired number of replicas at a time.

    It is that after the last change, or before the first one, or the current number.
    """
    earlier = [one.after for one in changes if one.created_at <= at]
    return float(earlier[-1] if earlier else changes[0].before if changes else desired)


def _beside(points: Sequence[Point], parts: Sequence[tuple[datetime, float]]) -> list[float | None]:
    """Return for each point the last per cent measured before it, or None."""
    times = [at for at, _part in parts]
    places = [bisect_left(times, one.at) for one in points]
    return [100 * parts[place - 1][1] if place else None for place in places]


def _marks(changes: Sequence[ScalingRecord], until: datetime) -> tuple[Mark, ...]:
    found = []
    for one in changes:
        at = f"{timezone.localtime(one.created_at):%H:%M:%S}"
        x = max(1 - (until - one.created_at) / HOUR, 0.0) * WIDTH
        found.append(Mark(x, f"{at}: {one.before} → {one.after}. {in_words(one.message)}"))
    return tuple(found)


def _by_place(points: Sequence[Point], until: datetime) -> dict[int, Point]:
    """Return the last point of each column of the hour, by column number."""
    found = {}
    for one in points:
        place = int((1 - (until - one.at) / HOUR) * COLUMNS)
        if 0 <= place <= COLUMNS:
            found[min(place, COLUMNS - 1)] = one
    return found


def _plot(name: str, points: Mapping[int, Point], values: Sequence[float | None], words: str) -> Plot:
    known = [one for one in values if one is not None]
    most = max(known, default=0.0)
    wide = WIDTH / COLUMNS
    columns = []
    for (place, point), one in zip(points.items(), values, strict=True):
        height = HEIGHT * (one or 0.0) / most if most else 0.0
        said = words.format(one) if one is not None else _("no answer")
        title = f"{timezone.localtime(point.at):%H:%M:%S}: {said}"
        columns.append(Column(place * wide, HEIGHT - height, height, title))
    now = words.format(known[-1]) if known else "–"
    return Plot(name, words.format(most) if known else "–", now, tuple(columns))
