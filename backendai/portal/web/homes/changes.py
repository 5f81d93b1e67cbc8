"""Changes of files in the home folder of a session, sent by its pages."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.portal.web.folders.access import try_to
from backendai.portal.web.folders.changes import chosen_paths, name_in, valid_name
from backendai.portal.web.folders.paths import directory_of, inside, moved_to, path_in
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.homes.access import open_home


@signed_in("POST")
def make_directory(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Create a directory in the shown directory."""
    place, name = path_in(request.POST.get("place", "")), name_in(request)

    def make() -> str:
        open_home(request, session_id).change("mkdir", path=inside(place, valid_name(name)))
        return _("The directory %(name)s is there.") % {"name": name}

    try_to(request, make)
    return _back(session_id, place)


@signed_in("POST")
def rename(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Rename an entry."""
    source, name = path_in(request.POST.get("source", "")), name_in(request)
    place = directory_of(source)

    def give() -> str:
        open_home(request, session_id).change("rename", source=source, target=inside(place, valid_name(name)))
        return _("Renamed to %(name)s.") % {"name": name}

    try_to(request, give)
    return _back(session_id, place)


@signed_in("POST")
def move(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Move entries to another directory of the home folder."""
    place, target = path_in(request.POST.get("place", "")), path_in(request.POST.get("target", ""))

    def move_all() -> str:
        files = open_home(request, session_id)
        for source in chosen_paths(request):
            files.change("rename", source=source, target=moved_to(target, source))
        return _("Moved to %(target)s.") % {"target": target or "/home/work"}

    try_to(request, move_all)
    return _back(session_id, place)


@signed_in("POST")
def delete(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Delete entries permanently."""
    place = path_in(request.POST.get("place", ""))

    def delete_all() -> str:
        number = int(open_home(request, session_id).change("remove", paths=chosen_paths(request))["deleted"])
        text = ngettext("%(number)s entry is deleted.", "%(number)s entries are deleted.", number)
        return text % {"number": number}

    try_to(request, delete_all)
    return _back(session_id, place)


def _back(session_id: UUID, path: str) -> HttpResponse:
    return redirect(reverse("web:home", args=[session_id], query={"path": path} if path else None))
