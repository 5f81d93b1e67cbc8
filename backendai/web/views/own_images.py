"""Images that one made of one's sessions."""

from __future__ import annotations

from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from backendai.catalog.models import Image
from backendai.compute.services.commits import most_own_images
from backendai.compute.services.own_images import delete_own_image, own_images, rename_own_image
from backendai.core.errors import UserError
from backendai.web.account_pages import account_page, blame
from backendai.web.requests import PageRequest


class TitleForm(forms.Form):
    """An image's new title; the rule is the service's."""

    name = forms.CharField(
        label=gettext_lazy("Name of the image"),
        max_length=200,
        help_text=gettext_lazy("4 to 32 letters, digits, dashes and underscores."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


@require_safe
@never_cache
@login_required
def images(request: PageRequest) -> HttpResponse:
    """Show one's own images."""
    return _page(request)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def image_rename(request: PageRequest, own_image_id: UUID) -> HttpResponse:
    """Ask for a new title of one's own image; on POST give it."""
    image = _own(request, own_image_id)
    form = TitleForm(request.POST or None, initial={"name": image.title})
    if request.method == "POST" and form.is_valid():
        try:
            rename_own_image(request.user, image, form.cleaned_data["name"])
            messages.success(request, _("The image has its new name."))
            return redirect("web:own_images")
        except UserError as error:
            blame(form, error)
    return _page(request, form=form, renamed=image, status=422 if form.is_bound else 200)


@require_POST
@never_cache
@login_required
def image_delete(request: PageRequest, own_image_id: UUID) -> HttpResponse:
    """Delete one's own image, unless sessions need it."""
    image = _own(request, own_image_id)
    try:
        delete_own_image(request.user, image, now=timezone.now())
        messages.success(request, _("%(name)s is deleted.") % {"name": image.display_name})
    except UserError as error:
        messages.error(request, error.message)
    return redirect("web:own_images")


def _own(request: PageRequest, own_image_id: UUID) -> Image:
    found: Image = get_object_or_404(Image.objects.own_of(request.user), pk=own_image_id)
    return found


def _page(
    request: PageRequest, *, form: TitleForm | None = None, renamed: Image | None = None, status: int = 200
) -> HttpResponse:
    rows, most = own_images(request.user), most_own_images(request.user)
    context = {"rows": rows, "form": form, "renamed": renamed, "number": len(rows), "most": most}
    return account_page(request, "web:own_images", context, status=status)
