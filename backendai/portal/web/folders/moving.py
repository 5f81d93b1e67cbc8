"""Moves, renames and restores entries. Asks before replacing one, and reports entries that could not be moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from django.contrib import messages
from django.http import HttpResponse

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.storage.file_server import FileServerError, StorageSilent
from backendai.domain.storage.models import Folder
from backendai.portal.web.folders.access import folder_page
from backendai.portal.web.folders.paths import name_of
from backendai.portal.web.frame.requests import PageRequest

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
