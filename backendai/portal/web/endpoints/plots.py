"""The plots of an endpoint's page: columns of small SVG pictures, drawn by the server."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.utils import timezone

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.serving.models import ScalingRecord
from backendai.domain.serving.presentation import Point
from backendai.domain.serving.replaying import Yesterday

WIDTH, HEIGHT, COLUMNS = 480, 60, 120
HOUR, LEAST = timedelta(hours=1), timedelta(minutes=10)
_LEAST_COLUMN = timedelta(seconds=15)  # app proxies at rest report every ten seconds: a narrower column could be empty


@dataclass(frozen=True, slots=True)
class Window:
    """The time that plots show, up to ``until``."""

    until: datetime
    length: timedelta = HOUR

    @property
    def since(self) -> datetime:
        """Its beginning."""
        return self.until - self.length

    @property
    def columns(self) -> int:
        """How many columns a plot has."""
        return min(COLUMNS, self.length // _LEAST_COLUMN)

    @property
    def minutes(self) -> int:
        """Its length in minutes."""
        return round(self.length / timedelta(minutes=1))

    def part(self, at: datetime) -> float:
        """Return the position of a time: 0 at the beginning, 1 at the end."""
        return (at - self.since) / self.length


def window_of(created_at: datetime, now: datetime) -> Window:
    """Return the last hour, or less for a younger endpoint: its whole minutes, at least ten."""
    minutes = -((created_at - now) // timedelta(minutes=1))
    return Window(now, min(max(timedelta(minutes=minutes), LEAST), HOUR))


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
    window: Window,
    changes: Sequence[ScalingRecord] = (),
    accelerators: Sequence[tuple[datetime, float]] = (),
    desired: int = 0,
) -> list[Plot]:
    """Return the plots of this window.

    They are requests, waiting, latency, replicas, and accelerators if there are any. Each marks the decisions that
    changed the number of replicas (``changes``, the oldest first).
    """
    kept, marks = _by_place(points, window), _marks(changes, window)
    draw = partial(_plot, WIDTH / window.columns, marks, kept)
    plots = [
        draw(_("Requests per second"), [one.requests for one in kept.values()], "{:.2f}"),
        draw(_("Requests in progress and waiting"), [one.open + one.queued for one in kept.values()], "{:.1f}"),
        draw(_("Latency, 95th percentile"), [one.p95 for one in kept.values()], "{:g} s"),
    ]
    if kept:
        wanted = [_wanted_at(one.at, changes, desired) for one in kept.values()]
        plots.append(draw(_("Replicas wanted"), wanted, "{:.0f}"))
    if kept and accelerators:
        used = _beside(list(kept.values()), accelerators)
        plots.append(draw(_("Use of the accelerators"), used, "{:.0f} %"))
    return plots


def plot_of_replay(tried: Yesterday) -> Plot:
    """Return a plot of the replicas that the tried limits would have given yesterday, by minute."""
    kept = tried.minutes[:: max(1, -(-len(tried.minutes) // COLUMNS))]
    wide, most = WIDTH / max(len(kept), 1), max(tried.most, 1)
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
    return Plot(_("Replicas that there would have been"), str(tried.most), "", columns, width=wide)


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


def _marks(changes: Sequence[ScalingRecord], window: Window) -> tuple[Mark, ...]:
    found = []
    for one in changes:
        at = f"{timezone.localtime(one.created_at):%H:%M:%S}"
        x = max(window.part(one.created_at), 0.0) * WIDTH
        found.append(Mark(x, f"{at}: {one.before} → {one.after}. {in_words(one.message)}"))
    return tuple(found)


def _by_place(points: Sequence[Point], window: Window) -> dict[int, Point]:
    """Return the last point of each column, by column number."""
    found = {}
    for one in points:
        place = int(window.part(one.at) * window.columns)
        if 0 <= place <= window.columns:
            found[min(place, window.columns - 1)] = one
    return found


def _plot(
    width: float,
    marks: tuple[Mark, ...],
    points: Mapping[int, Point],
    name: str,
    values: Sequence[float | None],
    words: str,
) -> Plot:
    known = [one for one in values if one is not None]
    most = max(known, default=0.0)
    columns = []
    for (place, point), one in zip(points.items(), values, strict=True):
        height = HEIGHT * (one or 0.0) / most if most else 0.0
        said = words.format(one) if one is not None else _("no answer")
        title = f"{timezone.localtime(point.at):%H:%M:%S}: {said}"
        columns.append(Column(place * width, HEIGHT - height, height, title))
    now = words.format(known[-1]) if known else "–"
    return Plot(name, words.format(most) if known else "–", now, tuple(columns), marks, width)
