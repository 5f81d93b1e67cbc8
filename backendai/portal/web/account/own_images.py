"""The images that the user saved from sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.shares import projects_to_share_with, share_image, take_back_image
from backendai.domain.compute.services.images.commits import most_own_images
from backendai.domain.compute.services.images.own_images import (
    delete_own_image,
    own_images,
    rename_own_image,
    sessions_on,
)
from backendai.portal.web.account.menu import account_page, blame
from backendai.portal.web.frame.requests import PageRequest, signed_in


class TitleForm(forms.Form):
    """An image's new title, which the service validates."""

    name = forms.CharField(
        label=gettext_lazy("Name of the image"),
        max_length=200,
        help_text=gettext_lazy("4 to 32 letters, digits, dashes and underscores."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


class ShareForm(forms.Form):
    """The project with which to share an image."""

    project = forms.ChoiceField(label=gettext_lazy("Project"))

    def __init__(self, *args: Any, projects: Sequence[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(Any, self.fields["project"]).choices = [(project.pk, project.name) for project in projects]


@signed_in("GET")
def images(request: PageRequest) -> HttpResponse:
    """Show the user's own images."""
    return _page(request)


@signed_in("GET", "POST")
def image_rename(request: PageRequest, own_image_id: UUID) -> HttpResponse:
    """Show the form for an own image's title; on POST save it."""
    image = _own(request, own_image_id)
    form = TitleForm(request.POST or None, initial={"name": image.title})
    if request.method == "POST" and form.is_valid():
        try:
            rename_own_image(request.user, image, form.cleaned_data["name"])
            messages.success(request, _("The image is renamed."))
            return redirect("web:own_images")
        except UserError as error:
            blame(form, error)
    return _page(request, form=form, renamed=image, status=422 if form.is_bound else 200)


@signed_in("GET", "POST")
def image_delete(request: PageRequest, own_image_id: UUID) -> HttpResponse:
    """Ask for confirmation; on POST delete an own image, unless sessions need it."""
    image = _own(request, own_image_id)
    if request.method != "POST":
        return _page(request, deleted=image)
    try:
        delete_own_image(request.user, image, now=timezone.now())
        messages.success(request, _("%(name)s is deleted.") % {"name": image.display_name})
    except UserError as error:
        messages.error(request, in_words(error.message))
    return redirect("web:own_images")


@signed_in("GET", "POST")
def image_share(request: PageRequest, own_image_id: UUID) -> HttpResponse:
    """Show the form for a project; on POST share an own image with it."""
    image = _own(request, own_image_id)
    form = ShareForm(request.POST or None, projects=projects_to_share_with(request.user, image))
    if request.method == "POST" and form.is_valid():
        try:
            share = share_image(request.user, image, UUID(form.cleaned_data["project"]), now=timezone.now())
            told = {"name": image.display_name, "project": share.project.name}
            messages.success(request, _("%(name)s is shared with %(project)s.") % told)
            return redirect("web:own_image_share", own_image_id)
        except UserError as error:
            blame(form, error)
    return _page(request, form=form, shared=image, status=422 if form.is_bound else 200)


@signed_in("POST")
def image_take_back(request: PageRequest, own_image_id: UUID, project_id: UUID) -> HttpResponse:
    """End the sharing of an own image with a project."""
    image = _own(request, own_image_id)
    try:
        project = take_back_image(request.user, image, project_id)
        told = {"name": image.display_name, "project": project.name}
        messages.success(request, _("%(name)s is no longer shared with %(project)s.") % told)
    except UserError as error:
        messages.error(request, in_words(error.message))
    return redirect("web:own_image_share", own_image_id)


def _own(request: PageRequest, own_image_id: UUID) -> Image:
    found: Image = get_object_or_404(Image.objects.own_of(request.user), pk=own_image_id)
    return found


def _page(
    request: PageRequest,
    *,
    form: forms.Form | None = None,
    renamed: Image | None = None,
    shared: Image | None = None,
    deleted: Image | None = None,
    status: int = 200,
) -> HttpResponse:
    """Return the list of own images. Above it is a form for a title or project, or the confirmation of a deletion."""
    rows = own_images(request.user)
    context = {"rows": rows, "number": len(rows), "most": most_own_images(request.user)}
    context |= {"form": form, "renamed": renamed, "deleted": deleted, "shared": shared}
    context["shared_projects"] = next((row.projects for row in rows if row.image == shared), [])
    context["users"], context["others"] = sessions_on(deleted, request.user) if deleted else ([], 0)
    context["of_others"] = list(Image.objects.shared_with(request.user).order_by("title", "name"))
    return account_page(request, "web:own_images", context, status=status)
