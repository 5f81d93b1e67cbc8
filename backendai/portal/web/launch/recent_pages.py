"""The user's recent launches, and actions on them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.slots import Slots
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import LaunchRecord
from backendai.domain.compute.services.launching.recent import (
    delete_launch,
    pin_launch,
    recent_launch,
    recent_launches,
    rename_launch,
)
from backendai.domain.storage.models import Folder
from backendai.portal.web.frame.requests import PageRequest, signed_in

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


@signed_in("GET")
def recent(request: PageRequest) -> HttpResponse:
    """Show the user's recent launches; for htmx only the list."""
    return _shown(request, {})


@signed_in("POST")
def change(request: PageRequest, recent_launch_id: UUID) -> HttpResponse:
    """Rename, pin, unpin or delete a recent launch."""
    try:
        record = recent_launch(request.user, recent_launch_id)
    except NotFound as error:
        raise Http404 from error
    try:
        _do(request, record, request.POST.get("action", ""))
    except UserError as error:
        if request.htmx:
            return _shown(
                request, {"wrong": record.pk, "refusal": error.message, "typed": request.POST.get("name", "")}
            )
        messages.error(request, in_words(error.message))
    return _shown(request, {}) if request.htmx else redirect("web:recent")


def _do(request: PageRequest, record: LaunchRecord, action: str) -> None:
    if action == "rename":
        rename_launch(request.user, record, request.POST.get("name", "").strip())
    elif action in ("pin", "unpin"):
        pin_launch(request.user, record, action == "pin")
    elif action == "delete":
        delete_launch(request.user, record)
    else:
        raise UserError("Unknown action {action}.", action=repr(action[:20]), field="action", code="unknown-action")


def _shown(request: PageRequest, more: dict[str, Any]) -> HttpResponse:
    context = {"section": "sessions", "launches": recent_list(request.user), **more}
    template = "web/launch/_recent_list.html" if request.htmx else "web/launch/recent.html"
    return render(request, template, context)
