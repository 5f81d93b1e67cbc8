"""Common parts of the pages of a session's home folder.

They are access, requests to the guest agent, and the frame of the page.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from asgiref.sync import async_to_sync
from csp.constants import SELF
from csp.decorators import csp_update
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from backendai.base.core.errors import Conflict, NotFound
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import ShareRight
from backendai.gates.gateways.asking import NodeUnreachable
from backendai.gates.gateways.guests import find_target
from backendai.gates.gateways.homes import CHANGE_SECONDS, ask_home
from backendai.gates.gateways.open_questions import waiting_thread
from backendai.portal.web.frame.requests import PageRequest
from backendai.portal.web.session.pages import find_session

LOOK_SECONDS = 25.0  # the first look starts the guest agent, which has 20 s for that


class HomeFiles:
    """The files of a session's home folder for this user.

    Every method waits for the guest agent. Raises the guest's UserError, or Conflict if the guest is unreachable.
    """

    def __init__(self, request: PageRequest, session_id: UUID) -> None:
        self.target = find_target(request.user, session_id)

    def look(self, op: str, /, **order: Any) -> dict[str, Any]:
        """Send a reading operation to the guest agent, and return its answer."""
        return self._ask(op, LOOK_SECONDS, order)

    def change(self, op: str, /, **order: Any) -> dict[str, Any]:
        """Send a changing operation to the guest agent, and return its answer."""
        return self._ask(op, CHANGE_SECONDS, order)

    def _ask(self, op: str, seconds: float, order: dict[str, Any]) -> dict[str, Any]:
        try:
            with waiting_thread(self.target.base):
                return async_to_sync(ask_home)(self.target, op, seconds=seconds, **order)
        except NodeUnreachable as error:
            raise Conflict("The session's agent does not answer. Try again in a moment.", code=error.code) from error


def open_home(request: PageRequest, session_id: UUID) -> HomeFiles:
    """Return the home files of a visible session; else 404. Raises UserError if the files are unreachable now."""
    try:
        return HomeFiles(request, session_id)
    except NotFound as error:
        raise Http404 from error
    except Conflict as error:
        if error.code == "session-not-running":
            raise Conflict("The home folder can be opened while the session runs.", code=error.code) from error
        raise Conflict("Only the home folder of an interactive session can be opened.", code=error.code) from error


def explored(session: ComputeSession) -> dict[str, Any]:
    """Return the context of parts that show files: the session, and the routes of its pages."""
    names = {
        "here": "home",
        "file": "home_file",
        "lead": "home_lead",
        "make_directory": "home_make_directory",
        "rename": "home_rename",
        "move": "home_move",
        "delete": "home_delete",
    }
    ways = {way: reverse(f"web:{name}", args=[session.pk]) for way, name in names.items()}
    ways["api"] = reverse("api:session-entries", args=[session.pk]).removesuffix("entries/")
    return {"ways": ways, "key": session.pk, "root_name": "/home/work", "status": "READY", "is_home": True}


def home_page(
    request: PageRequest, session_id: UUID, name: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """Return a page about the home folder. Its content policy allows images that its script has fetched."""
    session = find_session(request, session_id, ShareRight.USE)
    shown = {"session": session, "may_change": "fault" not in context, "is_ready": "fault" not in context}
    shown |= explored(session) | {"section": "sessions", "is_own": session.owner_id == request.user.pk} | context

    def page(request: HttpRequest) -> HttpResponse:
        return render(request, f"web/homes/{name}.html", shown, status=status)

    return cast(HttpResponse, csp_update({"img-src": [SELF, "data:", "blob:"]})(page)(request))
