"""Tells of a session that is not launched yet when it probably starts, from the newest look ahead of its group.

The look stores what agents have free at moments to come, so that no preview simulates anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import starmap

from django.db.models import Max, QuerySet

from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.models import FreeAhead, StartForecast
from backendai.domain.forecasts.scoring import spread_of_score
from backendai.domain.planning.explain import Explanation, Verdict
from backendai.scheduler.explaining.suggest import Suggestion, difference
from backendai.scheduler.forecasts.ranges import METHOD, range_of
from backendai.scheduler.forecasts.rooms import Moment, Request, Room, first_fit, smaller_fit
from backendai.scheduler.forecasts.starts import HORIZON, Foreseen
from backendai.scheduler.progress import LACKS_ROOM
from backendai.scheduler.snapshot import SessionView

ENDLESS, TOO_FAR, SEVERAL, OTHER = "endless", "too-far", "several-agents", "other"
MOST = 500  # sessions further back get no forecast
_BEHIND = "behind-in-queue"
_STALE = timedelta(minutes=15)  # older looks say nothing
_MOST_BEHIND = 20
_WORTH = timedelta(minutes=5)  # a smaller request is worth mentioning if it starts so much earlier


@dataclass(frozen=True, slots=True)
class LaunchForecast:
    """When a session would probably start; not stored. ``smaller``: amounts with which it would start earlier."""

    start: StartForecast
    smaller: Suggestion | None = None


def store_free(group: ResourceGroup, found: Foreseen, now: datetime) -> None:
    """Store what the look ahead expects to be free. Two statements."""
    moments = [
        [each.at.isoformat(), [[room.architecture, dict(room.free)] for room in each.rooms]] for each in found.moments
    ]
    values = {"moments": moments, "endless": found.endless, "was_cut": found.was_cut, "looked_at": now}
    FreeAhead.objects.update_or_create(resource_group=group, defaults=values)


def why_unknown(was_cut: bool, endless: int) -> str:
    """Return the code why a start is not foreseen."""
    return TOO_FAR if was_cut else ENDLESS if endless else OTHER


def forecast_launch(found: Explanation, *, least: Slots | None = None) -> LaunchForecast | None:
    """Return when the session of a preview probably starts, or why that cannot be said; None if it starts now, waits
    for something else than room, or nobody has looked ahead lately.

    ``least``: below this ``smaller`` does not go; None: no smaller request is tried. Two queries, and one more if
    others hold it back.
    """
    view, code = found.view, found.reason.code if found.reason else ""
    if found.verdict != Verdict.WAITS or view is None or code not in {*LACKS_ROOM, _BEHIND}:
        return None
    rows = FreeAhead.objects.filter(resource_group__name=found.group, looked_at__gt=found.now - _STALE)
    free = rows.select_related("resource_group__forecast_score").first()
    if free is None:
        return None
    group = free.resource_group
    is_held_back = code == _BEHIND and not group.backfill
    last, unknown = _ahead(group, found.position or 1) if is_held_back else (None, "")
    made = StartForecast(resource_group=group, updated_at=free.looked_at, method=METHOD, endless=free.endless)
    made.code = _why_not(view, found.position or 1) or unknown
    if made.code:
        return LaunchForecast(made)
    after = max(found.now, last or found.now)
    moments = [Moment(datetime.fromisoformat(at), tuple(starmap(_room, rooms))) for at, rooms in free.moments]
    request = Request(view.total, view.kernels[0].architecture, least or Slots())
    expected = _earliest(first_fit(moments, request, found.now, after), group, request, found)
    if expected is None:
        made.code = why_unknown(free.was_cut, free.endless)
    else:
        spread = spread_of_score(getattr(group, "forecast_score", None))
        made.expected, made.is_reliable = expected, spread.is_reliable
        made.early, made.late, made.latest = range_of(found.now, expected, expected, spread)
    if least is None or len(view.kernels) > 1:
        return LaunchForecast(made)
    before = expected - max(_WORTH, (expected - found.now) / 4) if expected else found.now + HORIZON
    smaller = smaller_fit(moments, request, found.now, after, before)
    return LaunchForecast(made, _suggestion(found.group, view, *smaller) if smaller else None)


def _why_not(view: SessionView, position: int) -> str:
    """Return why nothing can be said of this session; empty if something can."""
    if view.designated or (view.multi_node and len(view.kernels) > 1):
        return SEVERAL
    return TOO_FAR if position > MOST else ""


def _ahead(group: ResourceGroup, position: int) -> tuple[datetime | None, str]:
    """Return when the last of the sessions before this position starts, and why that is unknown, or an empty code. One
    query."""
    ahead = _forecasts(group).filter(session__queue_position__lt=position)
    found = ahead.aggregate(last=Max("expected"), code=Max("code"))
    return found["last"], found["code"] or ""


def _earliest(fit: datetime | None, group: ResourceGroup, request: Request, found: Explanation) -> datetime | None:
    """Return the first of: the time at which it fits, the start of a session behind it that asks for as much (of the
    ``_MOST_BEHIND`` next to start), and the reserved start. One query."""
    times = [each for each in (fit, found.reason.until if found.reason else None) if each]
    behind = _forecasts(group).filter(session__queue_position__gte=found.position or 1, expected__gt=found.now)
    for expected, slots in behind.order_by("expected").values_list("expected", "session__slots")[:_MOST_BEHIND]:
        if expected and request.slots.fits(Slots.parse(slots)):
            times.append(expected)
            break
    return min(times, default=None)


def _forecasts(group: ResourceGroup) -> QuerySet[StartForecast]:
    return StartForecast.objects.filter(resource_group=group, ratio=None, session__status=Status.PENDING)


def _room(architecture: str, free: dict[str, int]) -> Room:
    return Room(architecture, Slots(free))


def _suggestion(group: str, view: SessionView, at: datetime, amounts: Slots) -> Suggestion:
    message = Message(
        "With {amounts} it probably starts at about {at}.",
        amounts=difference(view.total, amounts),
        at=f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
    )
    return Suggestion(group, amounts, (), message)
