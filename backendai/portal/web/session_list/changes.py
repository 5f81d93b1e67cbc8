"""The list of compute sessions, its single rows, its columns, and the panel of free resources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Prefetch, QuerySet
from django.http import HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.csv_cells import csv_lines
from backendai.base.core.labels import label_lines
from backendai.domain.accounts.models import User
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import ShareRight
from backendai.domain.pipelines.documents.document import BATCH
from backendai.portal.web.dashboard.images import builds_for
from backendai.portal.web.dashboard.resources import RoomBars, rooms_for
from backendai.portal.web.frame.requests import PageRequest, ids_in, signed_in
from backendai.portal.web.pipelines.rows import RunRow, listed_runs
from backendai.portal.web.session_list.address import SIZES, Address
from backendai.portal.web.session_list.columns import (
    choose_columns,
    chosen_columns,
    headings,
    may_see_agents,
    offered_columns,
    order_of,
)
from backendai.portal.web.session_list.filters import PROPERTIES, SessionListFilter, chips, group_names, kind_of
from backendai.portal.web.session_list.pages import (
    MOST_SORTED,
    chosen,
    is_cut,
    numbers_of,
    pages_of,
    rows_of,
    type_tabs,
)
from backendai.portal.web.session_list.usage import note_usage

MOST_EXPORTED = 100_000
_AT_ONCE = 1_000
_HEADINGS = (
    "id", "name", "type", "status", "status_reason", "status_message", "result", "owner", "project", "domain",
    "access_key", "resource_group", "image", "cluster_mode", "cluster_size", "priority", "slots_per_kernel",
    "created_at", "started_at", "ended_at", "labels", "note",
)  # fmt: skip
_COLUMNS = (
    "name", "session_type", "status", "status_reason", "status_message", "result", "access_key", "cluster_mode",
    "cluster_size", "priority", "slots", "created_at", "started_at", "ended_at", "labels", "note", "owner__email",
    "project__name",
    "project__domain__name", "resource_group__name", "image__name",
)  # fmt: skip


def sessions_file(rows: QuerySet[Any], user: User) -> StreamingHttpResponse:
    """Return at most ``MOST_EXPORTED`` of these sessions as a streamed CSV file.

    Its headings are the names of REST, in every language.
    """
    with_agents = may_see_agents(user)
    answer = StreamingHttpResponse(csv_lines(_lines(rows, with_agents)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="sessions.csv"'
    return answer


def _lines(rows: QuerySet[Any], with_agents: bool) -> Iterator[list[Any]]:
    yield [*_HEADINGS, *(["agents"] if with_agents else [])]
    pointed = rows.select_related("owner", "project__domain", "resource_group", "image").only(*_COLUMNS)
    if with_agents:
        kernels = Kernel.objects.select_related("agent").only("session_id", "agent__name")
        pointed = pointed.prefetch_related(Prefetch("kernels", kernels))
    for session in pointed[:MOST_EXPORTED].iterator(chunk_size=_AT_ONCE):
        line = _line(session)
        if with_agents:
            names = [kernel.agent.name for kernel in session.kernels.all() if kernel.agent]
            line.append(", ".join(dict.fromkeys(names)))
        yield line


def _line(session: ComputeSession) -> list[Any]:
    project = session.project
    return [
        session.pk, session.name, session.session_type, session.status, session.status_reason, session.status_message,
        session.result, session.owner.email, project.name, project.domain.name, session.access_key,
        session.resource_group.name, session.image.name, session.cluster_mode, session.cluster_size, session.priority,
        json.dumps(session.slots, sort_keys=True), _moment(session.created_at), _moment(session.started_at),
        _moment(session.ended_at), "\n".join(label_lines(session.labels)), session.note,
    ]  # fmt: skip


def _moment(value: datetime | None) -> str:
    return value.isoformat() if value else ""


_ASKING = frozenset({"q", "session-filter"})  # what asks for another list, where the rest asks for the same one again


@signed_in("GET")
def sessions(request: PageRequest) -> HttpResponseBase:
    """Show the requested sessions; for htmx only the list, with ``?export=csv`` a file."""
    address = Address.of(request.GET)
    found = _filter_of(request, address)
    if request.GET.get("export") == "csv":
        return sessions_file(chosen(address, request.user, found), request.user)
    context = _list_context(request, address, found)
    if request.htmx and not request.htmx.boosted:
        answer = render(request, "web/_session_list.html", context)
        if request.htmx.trigger in _ASKING:
            answer["HX-Replace-Url"] = reverse("web:sessions") + address.here.rstrip("?")
        return answer
    return render(request, "web/sessions.html", context | {"rooms": _rooms(request)} | _choices(request.user, context))


@signed_in("GET")
def session_row(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Return the current row of a session."""
    columns = chosen_columns(request.user)
    visible = ComputeSession.objects.open_to(request.user, ShareRight.VIEW)
    (found,) = rows_of([get_object_or_404(visible.only("pk"), pk=session_id).pk], columns)
    context = {"session": found, "address": Address.of(request.GET), "columns": columns}
    return render(request, "web/_session_row.html", context | {"column_names": {one.name for one in columns}})


@signed_in("GET")
def sessions_usage(request: PageRequest) -> HttpResponse:
    """Return the usage bars of the given sessions, each for its row."""
    ids = ids_in(request.GET.getlist("session")[: max(SIZES)])
    visible = ComputeSession.objects.open_to(request.user, ShareRight.VIEW).running().filter(pk__in=ids)
    found = list(visible.only("status", "slots", "total_slots", "cluster_size"))
    note_usage(found, now=timezone.now())
    return render(request, "web/_session_uses.html", {"sessions": found})


@signed_in("POST")
def columns(request: PageRequest) -> HttpResponse:
    """Save the user's columns and their order, and redirect to the list."""
    moved = {name: request.POST.get(name, "") for name in ("earlier", "later")}
    choose_columns(request.user, request.POST.getlist("column"), **moved)
    back = Address.of(QueryDict(request.POST.get("back", "")[:2000].removeprefix("?")))
    return redirect(reverse("web:sessions") + back.here.rstrip("?"))


@signed_in("GET")
def resources_panel(request: PageRequest) -> HttpResponse:
    """Return the free and occupied resources of the groups open to the user."""
    return render(request, "web/_resources.html", {"rooms": _rooms(request)})


def _rooms(request: PageRequest) -> list[RoomBars] | None:
    """Return the resources of the groups; None if the site hides them from users."""
    if not request.user.is_superadmin and not site_settings().group_resources_visible:
        return None
    return rooms_for(request.user)


def _filter_of(request: PageRequest, address: Address) -> SessionListFilter:
    query = QueryDict(address.here.removeprefix("?"))
    found = SessionListFilter(query, user=request.user, finished=address.finished, groups=group_names(request.user))
    found.is_valid()
    return found


def _list_context(request: PageRequest, address: Address, found: SessionListFilter) -> dict[str, Any]:
    columns = chosen_columns(request.user)
    numbers = numbers_of(address, request.user)
    pages = pages_of(address, request.user, found, columns, numbers)
    page = pages.get_page(address.get("page"))
    order = order_of(address, request.user)
    return {
        "section": "sessions",
        "address": address,
        "q": address.get("q"),
        "filter": found,
        "chips": chips(address, found),
        "columns": columns,
        "column_names": {column.name for column in columns},
        "headings": headings(address, columns),
        "numbers": numbers,
        "tabs": type_tabs(address, numbers),
        "links": _links(address, page),
        "most_sorted": MOST_SORTED if is_cut(address, order) and page.paginator.count >= MOST_SORTED else None,
        "page": page,
        "builds": builds_for(request.user),
        "runs": _runs(request.user, address, page.number),
        "sees_others": request.user.role != User.Role.USER,
    }


def _runs(user: User, address: Address, page: int) -> list[RunRow]:
    """Return the runs above the sessions: on the first page, of the type of their sessions, and without filters."""
    asked = {name for name, _value in address.params} & PROPERTIES
    if address.shared or page > 1 or asked or kind_of(address) not in ("", BATCH):
        return []
    mine = address.get("whose") == "mine"
    return listed_runs(user, finished=address.finished, mine=mine, words=address.get("q")[:100])


def _links(address: Address, page: Any) -> dict[str, str]:
    """Return the addresses of the list's other views."""
    return {
        "running": address.to(view="", status="", whose="" if address.shared else address.get("whose")),
        "finished": address.to(view="finished", status="", whose="" if address.shared else address.get("whose")),
        "shared": address.to(whose="shared", view="", status=""),
        "all": address.to(whose=""),
        "mine": address.to(whose="mine"),
        "reset": address.cleared(PROPERTIES | {"q", "type", "sort"}),
        "newer": address.to(page=str(page.previous_page_number())) if page.has_previous() else "",
        "older": address.to(page=str(page.next_page_number())) if page.has_next() else "",
        "file": f"{address.to()}&export=csv".replace("?&", "?"),
    }


def _choices(user: User, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context that only the whole page needs: the choices besides the list."""
    address: Address = context["address"]
    labels = [one for one in address.params if one[0] == "label"]  # the filter's input shows the last one
    return {
        "columns_offered": offered_columns(user, context["columns"]),
        "sizes": [(size, address.to(size=str(size)), size == address.size) for size in SIZES],
        "kept": [one for one in address.params if one[0] in ("view", "type", "whose", "sort", "size")] + labels[:-1],
    }
