"""The output of a kernel as plain text."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from backendai.base.core.errors import NotFound
from backendai.base.core.log_lines import last_lines
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.apps.of_session import app_logs_of
from backendai.domain.compute.services.records.log_ends import EMPTY, why_no_logs
from backendai.domain.compute.services.records.logs import saved_log
from backendai.domain.compute.status import PLACED, TERMINAL, ShareRight, Status
from backendai.gates.gateways.asking import NodeUnreachable, ask
from backendai.gates.gateways.tickets import address_of
from backendai.portal.api.frame.parsing import BoundedSerializer, values_of
from backendai.portal.api.sessions.views import OneSessionView

LARGEST_LOG = 32 * 2**20


def read_log(kernel: Kernel, *, tail: int | None, app: str = "") -> tuple[bytes, bool] | None:
    """Return the output of a kernel, or of an app in it; None if its agent does not have it.

    Also returns whether the output was cut at ``LARGEST_LOG`` bytes. Raises NodeUnreachable.
    """
    if kernel.agent is None:
        return None
    query: dict[str, str | int] = ({"tail": tail} if tail else {}) | ({"app": app} if app else {})
    address = address_of(kernel, "log")
    reply = ask(address, largest=LARGEST_LOG, connect=3.0, read=15.0, query=query)
    if reply.status == 404:
        return None
    if reply.status != 200:
        text = "{address} answered {status}: {answer}"
        raise NodeUnreachable(text, address=address.url, status=reply.status, answer=repr(reply.content[:200]))
    return reply.content, reply.is_cut


_MOST_LINES = 1_000_000


class TextRenderer(BaseRenderer):
    """Accepts requests for ``text/plain``; the view itself writes the text."""

    media_type = "text/plain"
    format = "text"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        """Return the data as text."""
        return str(data).encode()


class LogQuery(BoundedSerializer):
    """The kernel or app, and the part of its log to return."""

    kernel = serializers.UUIDField(default=None, help_text="A kernel of the session; default: the main one.")
    app = serializers.CharField(
        default="", help_text="The output of this app of the main kernel, while the session runs."
    )
    generation = serializers.IntegerField(
        default=None, min_value=1, help_text="The start of the kernel; default: the newest."
    )
    tail = serializers.IntegerField(default=None, min_value=1, max_value=_MOST_LINES, help_text="The last lines only.")


class SessionLog(OneSessionView):
    """The output of a kernel."""

    renderer_classes = [TextRenderer, JSONRenderer]
    right = ShareRight.VIEW

    @extend_schema(
        parameters=[LogQuery, OpenApiParameter("X-Log-Truncated", bool, OpenApiParameter.HEADER, response=True)],
        responses={(200, "text/plain"): str},
    )
    def get(self, request: Request, session_id: UUID) -> HttpResponse:
        """Return the log; ``X-Log-Truncated`` says whether a part of it was not stored."""
        session, wanted = self.get_object(), values_of(LogQuery, request.query_params)
        if wanted["app"]:  # what apps print may open them
            get_object_or_404(ComputeSession.objects.open_to(self.user, ShareRight.USE), pk=session_id)
        kernels = session.kernels.select_related("agent")
        kernel = get_object_or_404(kernels, pk=wanted["kernel"]) if wanted["kernel"] else kernels.get(rank=0)
        app, tail = wanted["app"], wanted["tail"]
        generation = wanted["generation"]
        if generation is not None and generation != kernel.generation and not app:
            content, truncated = _kept_of(kernel, generation, tail)
        else:
            content, truncated = _log_of_app(session, kernel, app, tail) if app else log_of(kernel, tail)
        answer = HttpResponse(content, content_type="text/plain; charset=utf-8")
        answer["X-Log-Truncated"] = "true" if truncated else "false"
        answer["Cache-Control"] = "no-store"
        return answer


def _log_of_app(session: ComputeSession, kernel: Kernel, app: str, tail: int | None) -> tuple[bytes, bool]:
    known = [name for name, _title in app_logs_of(session, kernel)] if kernel.rank == 0 else []
    found = read_log(kernel, tail=None, app=app) if app in known else None
    if found is None:
        raise NotFound(_why_no_app_log(session, kernel, app[:32], known), code="no-log")
    return _end_of(found[0], tail), found[1]


def _why_no_app_log(session: ComputeSession, kernel: Kernel, app: str, known: list[str]) -> str:
    if not session.is_running:
        return "App output can be read only while the session runs. Leave out app to read the session's log."
    if kernel.rank:
        return "Apps run on the main kernel only. Leave out kernel to read the output of an app."
    if app in known:
        return f"The agent has no output of the app {app}. Start the app, then try again."
    usable = f"Use one of: {', '.join(known)}." if known else "No app of this session has output that can be read."
    return f"This session has no app named {app} with output. {usable}"


def log_of(kernel: Kernel, tail: int | None = None) -> tuple[bytes, bool]:
    """Return the output of a kernel, and whether it was cut. Raises NotFound if it was not kept."""
    on_node = read_log(kernel, tail=tail) if kernel.status in PLACED - {Status.SCHEDULED} else None
    if on_node is not None:
        return on_node
    if kernel.status not in TERMINAL | {Status.TERMINATING}:
        return b"", False
    return _kept_of(kernel, None, tail)


def _kept_of(kernel: Kernel, generation: int | None, tail: int | None) -> tuple[bytes, bool]:
    kept, why = saved_log(kernel, generation), ""
    if kept is None and generation is None and kernel.status in TERMINAL:
        why = why_no_logs([kernel], timezone.now())[kernel.pk]
        kept = (b"", False) if why == EMPTY else None
    if kept is None:
        raise NotFound(why or "The output of this kernel was not kept.", code="no-log")
    content, truncated = kept
    return _end_of(content, tail), truncated


def _end_of(content: bytes, tail: int | None) -> bytes:
    return content if tail is None else last_lines(content, tail)
