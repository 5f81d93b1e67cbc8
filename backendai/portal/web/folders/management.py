"""Sharing a folder, its settings, and the sessions that use it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Membership
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.storage.models import Folder
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services import (
    clone_folder,
    rename_folder,
    revoke_grant,
    set_cloneable,
    set_limit,
    set_member_rights,
    set_override,
    share_folder,
)
from backendai.domain.storage.status import GrantKind
from backendai.portal.web.account.menu import blame
from backendai.portal.web.folders.access import find_folder, folder_page, rights_to, try_to
from backendai.portal.web.folders.forms import CloneForm, OverrideForm, SettingsForm, ShareForm
from backendai.portal.web.frame.requests import PageRequest, signed_in

_MOST_USES = 100


@signed_in("GET", "POST")
def sharing(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Show the people with access to a folder; on POST invite a person, or change a project member's rights."""
    folder = find_folder(request, folder_id, MANAGE)
    is_override = request.POST.get("kind") == "override"
    share = ShareForm(request.POST if request.method == "POST" and not is_override else None)
    override = OverrideForm(request.POST if is_override else None, folder=folder)
    form = override if is_override else share
    if request.method == "POST" and form.is_valid():
        try:
            _grant(request, folder, form.cleaned_data)
            return redirect("web:folder_sharing", folder_id)
        except UserError as error:
            if is_override:
                error.field = {"email": "member", "rights": "member_rights"}.get(error.field or "")
            blame(form, error)
    grants = list(folder.grants.select_related("user").order_by("user__email"))
    context: dict[str, Any] = {
        "form": share,
        "override_form": override if folder.project_id else None,
        "invited": [grant for grant in grants if grant.kind == GrantKind.INVITATION],
        "overrides": [grant for grant in grants if grant.kind == GrantKind.OVERRIDE],
        "member_count": Membership.objects.filter(project=folder.project_id).count() if folder.project_id else 0,
        "mounts": _live_mounts(folder),
    }
    return folder_page(request, folder, "sharing", context, tab="sharing", status=422 if form.errors else 200)


@signed_in("POST")
def revoke(request: PageRequest, folder_id: UUID, guest_id: UUID) -> HttpResponse:
    """End the sharing of the folder with a person."""
    folder = find_folder(request, folder_id, MANAGE)
    grant = folder.grants.select_related("user").filter(user=guest_id).first()

    def take_back() -> str:
        if grant is None:
            raise NotFound("The folder is not shared with them.", code="no-grant")
        revoke_grant(folder, request.user, grant.user, now=timezone.now())
        return _("%(email)s no longer has rights of their own.") % {"email": grant.user.email}

    try_to(request, take_back)
    return redirect("web:folder_sharing", folder_id)


@signed_in("GET", "POST")
def settings(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Show a folder's properties and the sessions that use it; on POST change its settings."""
    folder = find_folder(request, folder_id)
    form = SettingsForm(request.POST or None, folder=folder) if rights_to(folder) == MANAGE else None
    if form is not None and form.is_bound and form.is_valid():

        def save() -> str:
            _save(request, folder, form)
            return _("The settings of %(name)s are saved.") % {"name": form.cleaned_data["name"]}

        try:
            save_text = save()
        except UserError as error:
            blame(form, error)
        else:
            try_to(request, lambda: save_text)
            return redirect("web:folder_settings", folder_id)
    return _settings_page(request, folder, form)


@signed_in("POST")
def clone(request: PageRequest, folder_id: UUID) -> HttpResponse:
    """Clone a folder, and redirect to the clone."""
    folder = find_folder(request, folder_id)
    form = CloneForm(request.POST, user=request.user, folder=folder)
    if form.is_valid():
        data = form.cleaned_data
        try:
            made = clone_folder(
                folder,
                request.user,
                name=data["name"],
                project=data.get("project"),
                limit_bytes=data["limit_bytes"],
                host=data.get("host"),
                now=timezone.now(),
            )
            return redirect("web:folder", made.pk)
        except UserError as error:
            blame(form, error)
    own = SettingsForm(folder=folder) if rights_to(folder) == MANAGE else None
    return _settings_page(request, folder, own, clone_form=form)


def _settings_page(
    request: PageRequest, folder: Folder, form: forms.Form | None, *, clone_form: CloneForm | None = None
) -> HttpResponse:
    may_clone = (rights_to(folder) == MANAGE or folder.is_cloneable) and not folder.linked_path
    asked = clone_form or (_clone_form(request, folder) if may_clone else None)
    uses = SessionMount.objects.filter(folder=folder).select_related("session__owner").order_by("-created_at")
    if rights_to(folder) != MANAGE:
        uses = uses.filter(session__in=ComputeSession.objects.visible_to(request.user))
    context: dict[str, Any] = {"form": form, "clone_form": asked, "uses": list(uses[:_MOST_USES])}
    context["may_leave"] = folder.grants.filter(user=request.user, kind=GrantKind.INVITATION).exists()
    context["sizes"] = list(folder.sizes.order_by("-day")[:14])
    is_wrong = bool((form and form.errors) or (clone_form and clone_form.errors))
    return folder_page(request, folder, "settings", context, tab="settings", status=422 if is_wrong else 200)


def _clone_form(request: PageRequest, folder: Folder) -> CloneForm:
    return CloneForm(user=request.user, folder=folder, initial={"name": f"{folder.name}-copy"})


def _grant(request: PageRequest, folder: Folder, data: dict[str, Any]) -> None:
    now = timezone.now()
    if "member" in data:
        grant = set_override(folder, request.user, data["member"], data["member_rights"], now=now)
        try_to(request, lambda: _("The rights of %(email)s are set.") % {"email": grant.user.email})
        return
    grant = share_folder(folder, request.user, data["email"], data["rights"], now=now)
    text = _("The rights of %(email)s are set.") if grant.accepted_at else _("%(email)s is invited.")
    try_to(request, lambda: text % {"email": grant.user.email})


def _save(request: PageRequest, folder: Folder, form: SettingsForm) -> None:
    now, data = timezone.now(), form.cleaned_data
    found = rename_folder(folder, request.user, data["name"], now=now)
    if "limit_bytes" in data:
        found = set_limit(found, request.user, data["limit_bytes"], now=now)
    if "is_cloneable" in data:
        found = set_cloneable(found, request.user, data["is_cloneable"], now=now)
    if data.get("member_rights"):
        set_member_rights(found, request.user, data["member_rights"], now=now)


def _live_mounts(folder: Folder) -> list[SessionMount]:
    rows = folder.mounts.filter(released_at=None).select_related("session__owner").order_by("created_at")
    return list(rows[:_MOST_USES])
