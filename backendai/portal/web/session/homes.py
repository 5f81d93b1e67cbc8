"""Copies the home folder of a running session into a new folder."""

from __future__ import annotations

from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.home_retention import home_under_way, keep_home, kernel_with_home
from backendai.domain.storage.models import StorageHost
from backendai.portal.web.account.menu import blame
from backendai.portal.web.folders.forms import SizeField
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session

_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autofocus": True}


class KeepForm(forms.Form):
    """The name and place of the new folder, which the service validates."""

    name = forms.CharField(label=_l("Name of the folder"), max_length=64, widget=forms.TextInput(_PLAIN))
    host = forms.ModelChoiceField(StorageHost.objects.none(), label=_l("Storage host"), empty_label=None)
    limit_bytes = SizeField(label=_l("Limit"), help_text=_l("For example 500m, 20g or 1t. Empty: no limit of its own."))
    ends_session = forms.BooleanField(label=_l("Terminate the session after the copy"), required=False)

    def __init__(self, data: object = None, *, session: ComputeSession) -> None:
        super().__init__(data, initial={"name": f"{session.name}-home"[:64]})  # type: ignore[arg-type]
        hosts = StorageHost.objects.filter(is_enabled=True).order_by("-is_default", "name")
        self.fields["host"].queryset = hosts  # type: ignore[attr-defined]
        self.fields["host"].initial = hosts.first()


@signed_in("GET", "POST")
def keep(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show the form for the folder; on POST start to copy. A script then gets 204, or the form with its error."""
    found = find_session(request, session_id)
    form = KeepForm(request.POST or None, session=found)
    if request.method == "POST" and form.is_valid():
        try:
            folder = keep_home(request.user, found, now=timezone.now(), **form.cleaned_data)
        except UserError as error:
            blame(form, error)
        else:
            if asks_for_part(request):
                return HttpResponse(status=204)
            said = _("The home folder is being copied into %(name)s; the bell shows the progress.")
            messages.success(request, said % {"name": folder.name})
            return redirect("web:session", session_id=session_id)
    context = {"form": form, "under_way": home_under_way(found), "obstacle": _obstacle(found)}
    return box(request, found, "web/_session_keep_home.html", context)


def _obstacle(session: ComputeSession) -> str:
    try:
        kernel_with_home(session)
    except UserError as error:
        return in_words(error.message)
    return ""
