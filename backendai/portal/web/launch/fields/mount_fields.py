"""Fields of the folders that a session mounts: a row with a check box for each offered folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from django import forms
from django.db.models import F, Q
from django.utils.functional import cached_property

from backendai.base.paths.mount_targets import HOME, absolute_target
from backendai.base.texts.translation import gettext_lazy
from backendai.domain.accounts.models import User
from backendai.domain.compute.spec import MountRequest
from backendai.domain.storage.models import Folder

MOST_SHOWN = 200
PARTS = ("path", "target", "rights")  # of a row, as they are sent: ``mount.<id>.target``
PREFIX = "mount."


SORTS: dict[str, tuple[Any, ...]] = {
    "name": (),
    "created": ("-created_at",),
    "size": (F("used_bytes").desc(nulls_last=True),),
}


def _offered_to(owner: User) -> Any:
    return Folder.objects.offered_to(owner).select_related("host", "user", "project")


class MountRows(forms.Widget):
    """Reads the ids of the selected folders, and ``mount.<id>.<part>`` for each."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[MountRequest]:
        """Return the mounts of the selected folders."""
        return [
            MountRequest(folder, **{part: data.get(f"{PREFIX}{folder}.{part}", "").strip() for part in PARTS})
            for folder in dict.fromkeys(data.getlist(name))
            if folder
        ]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether no folder is selected."""
        return name not in data


class MountsField(forms.Field):
    """A field whose value is the mounts of a ``SessionSpec``. The services validate them."""

    widget = MountRows

    def clean(self, value: list[MountRequest]) -> list[MountRequest]:
        """Return the mounts."""
        return value or []


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder that can be mounted, as a row of the form. ``granted``: edit or view."""

    folder: Folder
    granted: str
    wish: MountRequest
    is_chosen: bool
    is_start: bool

    @property
    def usual_target(self) -> str:
        """The path of the folder in a kernel, without an alias."""
        return absolute_target(self.folder.name, "")


class MountFields(forms.Form):
    """The folders to mount, and the folder in which programs start."""

    mounts: Any = MountsField(required=False, label=gettext_lazy("Folders"))
    start_in: Any = forms.CharField(max_length=255, required=False, label=gettext_lazy("Start here"))
    mounts_search: Any = forms.CharField(max_length=100, required=False)
    mounts_sort: Any = forms.ChoiceField(choices=[(name, name) for name in SORTS], required=False)
    mounts_owner: User

    def offer_folders(self, owner: User) -> None:
        """Offer the folders that the owner of the session can mount."""
        self.mounts_owner = owner

    @cached_property
    def folders(self) -> list[Any]:
        """The shown folders: those that match the search, and all selected ones.

        Has one more than ``MOST_SHOWN`` if there are more. One query, and another if a selected folder is not among
        them.
        """
        found = _offered_to(self.mounts_owner)
        for word in self.searched().split():
            found = found.filter(
                Q(name__icontains=word) | Q(user__email__icontains=word) | Q(project__name__icontains=word)
            )
        first = list(found.order_by(*SORTS[self.sorted_by()], "name", "pk")[: MOST_SHOWN + 1])
        known = {name for folder in first[:MOST_SHOWN] for name in (str(folder.pk), folder.name)}
        missing = [wish.folder for wish in self["mounts"].value() or () if wish.folder not in known]
        if not missing:
            return first
        ids = [name for name in missing if is_uuid(name)]
        return [*_offered_to(self.mounts_owner).filter(Q(pk__in=ids) | Q(name__in=missing)), *first]

    def searched(self) -> str:
        """Return the search words for folders."""
        return str(self["mounts_search"].value() or "")[:100].replace("\0", "").strip()

    def sorted_by(self) -> str:
        """Return the field by which folders are sorted."""
        asked = str(self["mounts_sort"].value() or "")
        return asked if asked in SORTS else "name"

    def chosen_mounts(self) -> Sequence[MountRequest]:
        """Return the mounts of a valid form."""
        return cast(Sequence[MountRequest], self.cleaned_data.get("mounts") or ())

    def chosen_start(self) -> str:
        """Return the folder in which programs start, or the home's path; empty if the folder is not mounted."""
        start = self.cleaned_data.get("start_in") or ""
        return start if start == HOME or any(wish.folder == start for wish in self.chosen_mounts()) else ""

    def folder_rows(self) -> list[FolderRow]:
        """Return the rows of the folders that can be selected."""
        wishes = {wish.folder: wish for wish in self["mounts"].value() or ()}
        start = self["start_in"].value() or ""
        rows = [
            _row(folder, wishes.get(str(folder.pk)) or wishes.get(folder.name), start)
            for folder in {folder.pk: folder for folder in self.folders}.values()
            if not folder.name.startswith(".")
        ]
        return sorted(rows, key=lambda row: not row.is_chosen)[:MOST_SHOWN]

    def automatic_folders(self) -> list[str]:
        """Return the names of folders that every session mounts automatically."""
        return [folder.name for folder in self.folders if folder.name.startswith(".")]

    def has_more_folders(self) -> bool:
        """Whether there are more folders than the page shows."""
        return len(self.folders) > MOST_SHOWN

    def home(self) -> str:
        """Return the home folder of sessions."""
        return HOME


def wishes_of(said: Iterable[Mapping[str, str]]) -> list[MountRequest]:
    """Return stored mounts for the form. If a folder is mounted several times, the first counts."""
    found: dict[str, MountRequest] = {}
    for one in said:
        wish = MountRequest(one["folder"], one.get("path", ""), one.get("target", ""), one.get("rights", ""))
        found.setdefault(wish.folder, wish)
    return list(found.values())


def start_in(mounts: Sequence[MountRequest], start: str) -> str:
    """Return the folder in which programs start, from a request that names the folder or its mount path."""
    if start and all(one.folder != start for one in mounts):
        for one in mounts:
            if absolute_target(one.folder, one.target) == absolute_target("", start):
                return one.folder
    return start


def sent_of(wishes: Iterable[MountRequest]) -> Mapping[str, str]:
    """Return the form data of these mounts, without the check boxes, by name."""
    return {f"{PREFIX}{wish.folder}.{part}": text for wish in wishes for part in PARTS if (text := getattr(wish, part))}


def is_uuid(text: str) -> bool:
    """Return whether the text is a UUID."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _row(folder: Any, wish: MountRequest | None, start: str) -> FolderRow:
    granted = "view" if folder.linked_path or folder.rights == "view" else "edit"
    is_start = bool(start) and start in (str(folder.pk), folder.name)
    return FolderRow(folder, granted, wish or MountRequest(str(folder.pk)), wish is not None, is_start)
