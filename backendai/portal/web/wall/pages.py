"""The wall: a page for a big screen with the agents, the queue, the endpoints and recent events."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from backendai.domain.planning.wall import MOST_AGENTS, Queued, events_for, queue_for, tiles_for, waits_for
from backendai.domain.serving.models import Endpoint
from backendai.domain.serving.presentation import shown
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.frame.time_words import clock
from backendai.portal.web.launch.resources import may_see_room
from backendai.portal.web.session.reasons.advice import Wait, wait_of
from backendai.portal.web.session_list.columns import may_see_agents
from backendai.portal.web.wall.drawing import bars_of, counts_of, drawn

_MOST_ENDPOINTS = 6
_SIZES = ((12, "xl"), (40, "l"), (90, "m"), (230, "s"))  # up to so many tiles; more are the smallest


@signed_in("GET")
def wall(request: PageRequest) -> HttpResponse:
    """Show the wall; for htmx only its content. What groups have is left out where the site hides it."""
    user, now = request.user, timezone.now()
    shows_room = may_see_room(user)
    is_named, found = may_see_agents(user), tiles_for(user) if shows_room else []
    tiles = [drawn(tile, number, is_named=is_named) for number, tile in enumerate(found, 1)]
    queue, waiting = queue_for(user)
    endpoints = Endpoint.objects.visible_to(user).live().order_by("-desired", "name", "pk")[:_MOST_ENDPOINTS]
    context: dict[str, Any] = {
        "section": "wall",
        "shows_room": shows_room,
        "groups": [(name, list(of)) for name, of in groupby(tiles, lambda one: one.tile.agent.resource_group.name)],
        "tiles": tiles,
        "size": next((size for most, size in _SIZES if len(tiles) <= most), "xs"),
        "is_partial": len(tiles) == MOST_AGENTS,
        "counts": counts_of(tiles),
        "queue": [(one, *_wait(one, now)) for one in queue if shows_room or one.session],
        "waiting": waiting if shows_room else None,
        "endpoints": shown(endpoints, now),
        "events": events_for(user, now),
    }
    if shows_room:
        waits = waits_for(user, now)
        context |= {"launched": waits.launched, "bars": bars_of(waits.means)}
        context |= {"mean": clock(int(waits.mean)), "longest": clock(int(waits.longest))}
    part = request.htmx and not request.htmx.boosted
    return render(request, "web/wall/_wall.html" if part else "web/wall/wall.html", context)


def _wait(queued: Queued, now: datetime) -> tuple[Wait | None, datetime | None]:
    """Return the wait of a visible session, and its expected start if that is known and to come."""
    if queued.session is None or (wait := wait_of(queued.session)) is None:
        return None, None
    forecast = getattr(queued.session, "start_forecast", None)
    start = (forecast and forecast.expected) or wait.until or queued.session.starts_at
    return wait, start if start and start > now else None
