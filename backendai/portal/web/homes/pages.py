"""The explorer of a running session's home folder: a directory, and one file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.compute.status import ShareRight
from backendai.portal.web.folders.explorer import PAGE_SIZE, DirectoryQuery
from backendai.portal.web.folders.paths import directory_of, entry_in, is_raw, name_of, path_in, places_of
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.homes.access import explored, home_page, open_home
from backendai.portal.web.session.pages import find_session


@signed_in("GET")
def home(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show a directory of the home folder; for htmx only its entries."""
    path = path_in(request.GET.get("path", ""))
    context = _directory(request, session_id, path)
    if request.htmx and not request.htmx.boosted:
        name = "_rows" if request.GET.get("after") else "_entries"
        shown = explored(find_session(request, session_id, ShareRight.USE)) | {"may_change": "fault" not in context}
        return render(request, f"web/folders/{name}.html", shown | context)
    return home_page(request, session_id, "explorer", context | {"places": places_of(path)})


@signed_in("GET")
def file(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show one file: as an image, as a text to edit, or only its properties."""
    session, path = find_session(request, session_id, ShareRight.USE), path_in(request.GET.get("path", ""))
    if not path:
        return redirect("web:home", session.pk)
    context: dict[str, Any] = {"path": path, "name": name_of(path), "parent": directory_of(path)}
    context["places"] = places_of(context["parent"])
    try:
        entry = open_home(request, session_id).look("stat", path=path)
        if entry["kind"] == "directory":
            return redirect(reverse("web:home", args=[session_id], query={"path": path}))
        _note(entry)
        context["entry"] = entry
    except UserError as error:
        context["fault"] = in_words(error.message)
    return home_page(request, session_id, "file", context, status=404 if "fault" in context else 200)


@signed_in("GET")
def lead(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Redirect to the download of a file or a ZIP archive.

    Both are attachments, which browsers do not show on this origin.
    """
    session, path = find_session(request, session_id, ShareRight.USE), path_in(request.GET.get("path", ""))
    if request.GET.get("as") == "zip":
        return redirect(reverse("api:session-archive", args=[session.pk], query={"path": path}))
    return redirect(reverse("api:session-file", args=[session.pk, path]) if path else "web:home", session_id)


def _directory(request: PageRequest, session_id: UUID, path: str) -> dict[str, Any]:
    asked = DirectoryQuery.of(request.GET)
    context: dict[str, Any] = {"path": path, "sort": asked.sort, "order": asked.order, "parent": directory_of(path)}
    context |= {"entries": [], "is_part": bool(asked.after), "is_root": not path, "is_raw": is_raw(path)}
    query = {"path": path, "limit": PAGE_SIZE, "sort": asked.sort, "order": asked.order, "after": asked.after or None}
    try:
        listing = open_home(request, session_id).look("list", **query)
    except UserError as error:
        return context | {"fault": in_words(error.message)}
    for entry in listing["entries"]:
        entry["path"] = entry_in(path, entry)
        _note(entry)
    context |= {"entries": listing["entries"], "next": listing.get("next"), "total": listing.get("total")}
    context |= {"is_sorted": listing.get("sorted", True), "headings": asked.headings(path)}
    return context | {"as_of": datetime.fromtimestamp(listing.get("as_of") or 0, UTC)}


def _note(entry: dict[str, Any]) -> None:
    """Set ``changed``, the entry's time of change as a datetime. An invalid time from the session becomes 1970."""
    seconds = entry.get("mtime")
    is_time = isinstance(seconds, int | float) and 0 <= seconds < 253402300800
    entry["changed"] = datetime.fromtimestamp(seconds if is_time else 0, UTC)  # type: ignore[arg-type]
