"""The list of recent launches, with the parts of each that no longer exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils.translation import gettext as _

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models.groups import ResourceGroup
from backendai.domain.compute.models.sessions import LaunchRecord
from backendai.domain.compute.services.launching.recent import recent_launches
from backendai.domain.storage.models import Folder

_IS_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(frozen=True, slots=True)
class RecentLaunch:
    """A row of the list. ``missing``: names of objects that no longer exist, or are no longer open to the user."""

    record: LaunchRecord
    environment: str
    missing: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The launch request as a document."""
        return self.record.document

    @property
    def amounts(self) -> Slots:
        """The amounts of each kernel."""
        try:
            return Slots.parse(self.document.get("resources", {}))
        except UserError:
            return Slots()

    @property
    def number(self) -> int:
        """The number of kernels that it would start."""
        return int(self.document.get("array_size") or self.document.get("count", 1)) * int(
            self.document.get("cluster_size", 1)
        )


def recent_list(user: User) -> list[RecentLaunch]:
    """Return the user's recent launches, in four queries.

    Objects of another owner's session are not checked here, only at the launch.
    """
    records = recent_launches(user)
    titles = _titles(user, _said(records, "image"))
    groups = ResourceGroup.objects.visible_to(user).filter(is_active=True, name__in=_said(records, "resource_group"))
    presets = ResourcePreset.objects.visible_to(user).filter(name__in=_said(records, "preset"))
    known = {"resource_group": set(groups.values_list("name", flat=True))}
    known["preset"] = set(presets.order_by().values_list("name", flat=True))
    known["image"] = set(titles)
    folders = {one["folder"] for record in records for one in record.document.get("mounts", ())}
    known["folder"] = _folders_there(user, folders)
    return [
        RecentLaunch(record, titles.get(name := record.document.get("image", ""), name), _missing(record, known))
        for record in records
    ]


def _titles(user: User, names: set[str]) -> dict[str, str]:
    """Return the titles of images by their names, aliases and references."""
    rows = Image.objects.usable_by(user).order_by().values_list("title", "name", "reference", "aliases__name")
    found = rows.filter(Q(name__in=names) | Q(reference__in=names) | Q(aliases__name__in=names))
    return {key: title or keys[0] for title, *keys in found for key in keys if key}


def _folders_there(user: User, named: set[str]) -> set[str]:
    if not named:
        return set()
    ids = [UUID(one) for one in named if _IS_ID.match(one)]
    rows = Folder.objects.offered_to(user).filter(Q(pk__in=ids) | Q(name__in=named))
    return {text for pk, name in rows.values_list("pk", "name") for text in (str(pk), name)}


def _said(records: Iterable[LaunchRecord], name: str) -> set[str]:
    return {value for record in records if (value := record.document.get(name))}


def _missing(record: LaunchRecord, known: dict[str, set[str]]) -> tuple[str, ...]:
    said = record.document
    if "owner" in said:
        return ()
    words = {"image": _("image"), "resource_group": _("resource group"), "preset": _("preset")}
    lost = [one["folder"] for one in said.get("mounts", ()) if one["folder"] not in known["folder"]]
    folders = (_("a folder"),) if len(lost) == 1 else (_("folders"),) if lost else ()
    return folders + tuple(
        f"{word} {said[name]}" for name, word in words.items() if said.get(name) and said[name] not in known[name]
    )
