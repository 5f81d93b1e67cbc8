"""Changes of files in a folder, sent by its pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.storage.entries import FolderFiles, open_folder
from backendai.domain.storage.file_server import FileServerError, StorageSilent
from backendai.domain.storage.models import Folder
from backendai.portal.web.folders.access import back_to, explorer_at, find_folder, folder_page, try_to
from backendai.portal.web.folders.paths import answered_path, directory_of, inside, moved_to, name_of, path_in
from backendai.portal.web.frame.requests import PageRequest, signed_in

_MOST_NAMED = 10
_EXISTS = "exists"
_REPLACE, _KEEP_BOTH = "1", "both"


@dataclass(slots=True)
class Moves:
    """The results of moving entries: the moved paths, and the reasons why others stayed."""

    done: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


def each_moved(sources: Iterable[str], move: Callable[[str], object]) -> Moves:
    """Move each entry, and return the results.

    If the storage host does not answer, the remaining entries fail with that reason.
    """
    moves, silent = Moves(), ""
    for source in sources:
        if silent:
            moves.failed.append((source, silent))
            continue
        try:
            move(source)
        except StorageSilent as error:
            silent = in_words(error.message)
            moves.failed.append((source, silent))
        except FileServerError as error:
            if error.code == _EXISTS:
                moves.taken.append(source)
            else:
                moves.failed.append((source, in_words(error.message)))
        except UserError as error:
            moves.failed.append((source, in_words(error.message)))
        else:
            moves.done.append(source)
    return moves


def tell(request: PageRequest, moves: Moves, done: str) -> None:
    """Show the results on the next page: ``done``, and each entry that was not moved with its reason."""
    if moves.done and not (moves.taken or moves.failed):
        messages.success(request, done)
    elif moves.done:
        messages.success(request, f"{done} {_('Done: %(names)s.') % {'names': _names(moves.done)}}")
    for why in dict.fromkeys(why for _path, why in moves.failed):
        names = _names([path for path, reason in moves.failed if reason == why])
        messages.error(request, _("Not done: %(names)s. %(why)s") % {"names": names, "why": why})


def ask_to_replace(
    request: PageRequest,
    folder: Folder,
    taken: Sequence[str],
    *,
    back: str,
    field_name: str,
    names: Sequence[str] = (),
    tab: str = "files",
) -> HttpResponse:
    """Return a page that asks whether to replace the existing entries or keep both, and then submits the form again.

    The page shows ``names`` or else the paths in ``taken``.
    """
    kept = [
        (name, value)
        for name, values in request.POST.lists()
        for value in values
        if name not in (field_name, "overwrite", "csrfmiddlewaretoken")
    ]
    fields = [*kept, *((field_name, path) for path in taken)]
    shown = names or [name_of(path) for path in taken]
    context = {"fields": fields, "names": shown, "back": back, "action": request.path}
    return folder_page(request, folder, "replace", context, tab=tab)


def taken_names(request: PageRequest) -> dict[str, bool]:
    """Return what the user has answered about taken names: replace the entries, keep both, or nothing yet."""
    answer = request.POST.get("overwrite")
    return {"overwrite": answer == _REPLACE, "keep_both": answer == _KEEP_BOTH}


def _names(paths: Sequence[str]) -> str:
    more = " …" if len(paths) > _MOST_NAMED else ""
    return ", ".join(name_of(path) for path in paths[:_MOST_NAMED]) + more


_MOST_AT_ONCE = 1000
_ITEM = re.compile(r"[\w.-]{1,64}\Z", re.ASCII)


@signed_in("POST")
def make_directory(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Create a directory in the shown directory."""
    folder, place = find_folder(request, folder_id), path_in(request.POST.get("place", ""))
    name = name_in(request)

    def make() -> str:
        _files(request, folder).make_directory(inside(place, valid_name(name)))
        return _("The directory %(name)s is there.") % {"name": name}

    try_to(request, make)
    return back_to(folder_id, place)


@signed_in("POST")
def rename(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Rename an entry; asks before replacing another."""
    folder, source = find_folder(request, folder_id), path_in(request.POST.get("source", ""))
    place, name = directory_of(source), name_in(request)

    def give(path: str) -> None:
        nonlocal name
        answer = _files(request, folder).move(path, inside(place, valid_name(name)), **taken_names(request))
        name = name_of(answered_path(answer))

    moves = each_moved([source], give)
    if moves.taken:
        back = explorer_at(folder_id, place)
        return ask_to_replace(request, folder, [source], names=[name], back=back, field_name="source")
    tell(request, moves, _("Renamed to %(name)s.") % {"name": name})
    return back_to(folder_id, place)


@signed_in("POST")
def move(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Move entries to another directory of the folder; asks before replacing others."""
    folder, place = find_folder(request, folder_id), path_in(request.POST.get("place", ""))
    target, taken = path_in(request.POST.get("target", "")), taken_names(request)
    try:
        sources, files = chosen_paths(request), _files(request, folder)
    except UserError as error:
        messages.error(request, in_words(error.message))
        return back_to(folder_id, place)

    moves = each_moved(sources, lambda path: files.move(path, moved_to(target, path), **taken))
    tell(request, moves, _("Moved to %(target)s.") % {"target": target or folder.name})
    if moves.taken:
        return ask_to_replace(request, folder, moves.taken, back=explorer_at(folder_id, place), field_name="path")
    return back_to(folder_id, place)


@signed_in("POST")
def delete(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Move entries to the folder's trash."""
    folder, place = find_folder(request, folder_id), path_in(request.POST.get("place", ""))

    def delete_all() -> str:
        answer = _files(request, folder).delete(chosen_paths(request))
        if "operation" in answer:
            return _("The entries are moved to the trash. That takes a while and goes on without this page.")
        number = len(answer.get("items", []))
        text = ngettext("%(number)s entry is in the trash.", "%(number)s entries are in the trash.", number)
        return text % {"number": number}

    try_to(request, delete_all)
    return back_to(folder_id, place)


@signed_in("POST")
def change_bin(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Restore an item of the folder's trash, purge it, or empty the trash."""
    folder, item = find_folder(request, folder_id), request.POST.get("item", "")
    if item and not _ITEM.match(item):
        raise Http404
    if request.POST.get("verb") == "restore" and item:
        return _restore(request, folder, item)
    try_to(request, _bin_work(request, folder, item))
    return redirect("web:folder_bin", folder_id)


def _bin_work(request: PageRequest, folder: Folder, item: str) -> Callable[[], str]:
    verb = request.POST.get("verb", "")

    def work() -> str:
        if verb == "purge" and item:
            _files(request, folder).forget(item)
            return _("Deleted for good.")
        if verb != "empty":
            raise UserError("Choose what to do: restore, purge or empty.", field="verb")
        _files(request, folder).empty_trash()
        return _("The trash is empty.")

    return work


def _restore(request: PageRequest, folder: Folder, item: str) -> HttpResponse:
    """Restore an item of the folder's trash; asks before replacing an entry."""
    taken, bin = taken_names(request), reverse("web:folder_bin", args=[folder.pk])
    moves = each_moved([item], lambda one: _files(request, folder).restore(one, **taken))
    if moves.taken:
        names = [request.POST.get("name", "").strip() or item]
        return ask_to_replace(request, folder, [item], names=names, back=bin, field_name="item", tab="bin")
    tell(request, moves, _("Restored."))
    return redirect(bin)


def _files(request: PageRequest, folder: Folder) -> FolderFiles:
    return open_folder(request.user, folder, to_edit=True)


def name_in(request: PageRequest) -> str:
    """Return the name entered in the form."""
    return request.POST.get("name", "").strip()


def valid_name(name: str) -> str:
    """Return the name if it is a valid entry name. Raises UserError."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise UserError("A name has at least one character and no '/'.", field="name")
    return name


def chosen_paths(request: PageRequest) -> list[str]:
    """Return the paths chosen in the form. Raises UserError unless there are 1 to 1,000."""
    found = [path for path in map(path_in, request.POST.getlist("path")) if path]
    if not 1 <= len(found) <= _MOST_AT_ONCE:
        raise UserError(
            "Choose 1 to {most_at_once} entries; {number} are chosen.",
            most_at_once=_MOST_AT_ONCE,
            number=len(found),
            field="path",
        )
    return found
