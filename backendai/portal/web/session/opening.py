"""The page that waits until a session runs and then opens one of its apps."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import Http404, HttpResponse
from django.shortcuts import render

from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.kinds import title_of
from backendai.domain.compute.status import Status
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.launch.fields.environments import is_launch_key

_MOST_LOOKS = 30  # without a session, one a second: a launch takes less
_SOON, _LATER = 1, 3  # seconds between two looks
_FEW = 60


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of the wait. ``looks``: how often the page has reloaded."""

    session: ComputeSession | None
    service: str
    looks: int

    @property
    def title(self) -> str:
        """The title of the app."""
        return title_of(self.service)

    @property
    def is_lost(self) -> bool:
        """Whether the launch created no session after many reloads."""
        return self.session is None and self.looks >= _MOST_LOOKS

    @property
    def is_ready(self) -> bool:
        """Whether the app can be opened."""
        return self.session is not None and self.session.status == Status.RUNNING

    @property
    def has_ended(self) -> bool:
        """Whether the session has ended, so that nothing can be opened."""
        return self.session is not None and (self.session.is_terminal or self.session.status == Status.TERMINATING)

    @property
    def waits(self) -> bool:
        """Whether the page must reload."""
        return not (self.is_lost or self.is_ready or self.has_ended)

    @property
    def pause(self) -> int:
        """The seconds until the next reload."""
        return _SOON if self.looks < _FEW else _LATER


@signed_in("GET")
def opening(request: PageRequest, launch_key: str, service: str) -> HttpResponse:
    """Show the progress of the user's session of this launch, and open its app once it runs; for htmx only the state.

    The page can precede its session, as the browser opens it at the click that launches.
    """
    if not is_launch_key(launch_key):
        raise Http404
    rows = ComputeSession.objects.filter(owner=request.user, idempotency_key=launch_key)
    looks = request.GET.get("looks", "")
    number = min(int(looks), 10**6) if looks.isascii() and looks.isdigit() and len(looks) < 8 else 0
    context = {"opening": Opening(rows.first(), service, number), "launch_key": launch_key, "section": "sessions"}
    return render(request, "web/_opening.html" if request.htmx else "web/opening.html", context)
