"""The explorer of a folder: its directories, its files, and its trash."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.http import urlencode

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.storage.entries import open_folder
from backendai.domain.storage.file_origins import make_file_entry
from backendai.domain.storage.file_server import StorageSilent
from backendai.domain.storage.models import Folder
from backendai.domain.storage.orders import measured_in
from backendai.domain.storage.services.measuring import take_newer
from backendai.portal.web.folders.access import back_to, explored, find_folder, folder_page, may_change_files
from backendai.portal.web.folders.paths import directory_of, entry_in, is_raw, name_of, path_in, places_of
from backendai.portal.web.folders.writers import note_changes
from backendai.portal.web.frame.requests import PageRequest, signed_in

_SORTS = ("name", "size", "mtime")
PAGE_SIZE = 200


class DirectoryQuery(NamedTuple):
    """The part of a directory and the order that an address requests."""

    sort: str
    order: str
    after: str

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> DirectoryQuery:
        """Return the requested part and order. Invalid values become the default."""
        sort, order = str(query.get("sort", "name")), str(query.get("order", "asc"))
        after = str(query.get("after", ""))[:1024]
        return cls(sort if sort in _SORTS else "name", order if order in ("asc", "desc") else "asc", after)

    def headings(self, path: str) -> list[dict[str, str]]:
        """Return the columns: the address that sorts by each, and its current order as in ``aria-sort``."""
        return [_heading(name, self.sort, self.order, path) for name in _SORTS]


@signed_in("GET")
def explorer(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Show a directory of a folder; for htmx only its entries."""
    folder, path = find_folder(request, folder_id), path_in(request.GET.get("path", ""))
    context = _directory(request, folder, path)
    if request.htmx and not request.htmx.boosted:
        name = "_rows" if request.GET.get("after") else "_entries"
        context |= explored(folder) | {"folder": folder, "has_new_size": True}
        return render(request, f"web/folders/{name}.html", context)
    return folder_page(request, folder, "explorer", context | {"places": places_of(path)}, tab="files")


@signed_in("GET")
def file(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Show one file: as an image, as a text to edit, or only its properties."""
    folder, path = find_folder(request, folder_id), path_in(request.GET.get("path", ""))
    if not path:
        return back_to(folder_id)
    context: dict[str, Any] = {"path": path, "name": name_of(path), "parent": directory_of(path)}
    try:
        entry = open_folder(request.user, folder).entry({"path": path})
        if entry["kind"] == "directory":
            return back_to(folder_id, path)
        note_changes(request.user, folder, context["parent"], [entry])
        context["entry"] = entry
    except UserError as error:
        context["fault"] = in_words(error.message)
    context["places"] = places_of(context["parent"])
    return folder_page(request, folder, "file", context, tab="files", status=404 if "fault" in context else 200)


@signed_in("GET")
def bin(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Show the deleted files of a folder (its trash)."""
    folder = find_folder(request, folder_id)
    context: dict[str, Any] = {"items": []}
    try:
        answer = open_folder(request.user, folder).trash(request.GET.get("after", "")[:200] or None)
        for item in answer["items"]:
            item["deleted"] = datetime.fromtimestamp(item.get("deleted_at") or 0, UTC)
        context = {"items": answer["items"], "next": answer.get("next")}
    except UserError as error:
        context["fault"] = in_words(error.message)
    return folder_page(request, folder, "bin", context, tab="bin")


@signed_in("POST")
def enter(request: PageRequest, folder_id: UUID) -> JsonResponse:
    """Return a one-time code for the files of a folder, and the address that accepts it."""
    folder = find_folder(request, folder_id)
    credential = Credential(login=request.session.session_key or "")
    entry = make_file_entry(request.user, folder, credential, timezone.now(), portal=request.get_host())
    return JsonResponse({"url": entry.url, "code": entry.code})


@signed_in("GET")
def lead(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Show a form that posts a one-time code to the origin of the files, and then leads to a file.

    The form submits itself.
    """
    folder, path = find_folder(request, folder_id), path_in(request.GET.get("path", ""))
    credential = Credential(login=request.session.session_key or "")
    entry = make_file_entry(request.user, folder, credential, timezone.now(), portal=request.get_host())
    is_archive = request.GET.get("as") == "zip"
    query = {"path": path} | ({"format": "zip"} if is_archive else {})
    query |= {"inline": "1"} if request.GET.get("as") == "shown" else {}
    way_on = f"/{'archive' if is_archive else 'content'}?{urlencode(query)}"
    context = {"entry": entry, "next": way_on, "name": name_of(path) or folder.name}
    return folder_page(request, folder, "lead", context, tab="files")


def _directory(request: PageRequest, folder: Folder, path: str) -> dict[str, Any]:
    asked = DirectoryQuery.of(request.GET)
    sort, order, after = asked
    context: dict[str, Any] = {"path": path, "sort": sort, "order": order, "parent": directory_of(path)}
    context |= {
        "entries": [],
        "is_part": bool(after),
        "may_change": may_change_files(folder),
        "is_root": not path,
        "is_raw": is_raw(path),
    }
    try:
        query = {"path": path, "limit": PAGE_SIZE, "sort": sort, "order": order, "after": after or None}
        listing = open_folder(request.user, folder).entries(query)
    except UserError as error:
        return context | {"fault": in_words(error.message), "is_away": isinstance(error, StorageSilent)}
    take_newer(folder, measured_in(listing.get("folder_size")), now=timezone.now())
    entries = listing["entries"]
    for entry in entries:
        entry["path"] = entry_in(path, entry)
    note_changes(request.user, folder, path, entries)
    context |= {"entries": entries, "next": listing.get("next"), "total": listing.get("total")}
    context["is_sorted"] = listing.get("sorted", True)
    context["as_of"] = datetime.fromtimestamp(listing.get("as_of") or 0, UTC)
    context["headings"] = asked.headings(path)
    return context


def _heading(name: str, sort: str, order: str, path: str) -> dict[str, str]:
    turned = "desc" if name == sort and order == "asc" else "asc"
    now = ("ascending" if order == "asc" else "descending") if name == sort else ""
    query = {"path": path, "sort": name, "order": turned}
    return {"name": name, "address": "?" + urlencode({key: value for key, value in query.items() if value}), "now": now}
