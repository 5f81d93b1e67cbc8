"""The dialog in which owners share a session, and stop sharing it."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.sharing import share_session, shares_of, unshare_session
from backendai.domain.compute.status import ShareRight
from backendai.portal.web.account.menu import blame
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.session.boxes import box
from backendai.portal.web.session.pages import asks_for_part, find_session


class ShareForm(forms.Form):
    """A person or a project, and their right."""

    email = forms.EmailField(
        required=False,
        max_length=254,
        label=gettext_lazy("E-mail address"),
        help_text=gettext_lazy("A person of your domain. Empty: the members of the project below."),
    )
    project = forms.ModelChoiceField(
        Project.objects.none(), required=False, label=gettext_lazy("Project"), empty_label=gettext_lazy("none")
    )
    right = forms.ChoiceField(
        label=gettext_lazy("Right"),
        choices=((ShareRight.VIEW, gettext_lazy("View")), (ShareRight.USE, gettext_lazy("Use"))),
        help_text=gettext_lazy(
            "View: its pages, log and usage, and the terminal without typing. "
            "Use: also type, run code, open apps and change files, as you."
        ),
    )

    def __init__(self, *args: Any, request: PageRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        projects = Project.objects.usable_by(request.user).order_by("name")
        cast(Any, self.fields["project"]).queryset = projects


@signed_in("GET", "POST")
def sharing(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Show with whom the user's session is shared, and a form; on POST share it."""
    found = _own(request, session_id)
    form = ShareForm(request.POST if request.method == "POST" else None, request=request)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        whom = {"email": said["email"], "project": said["project"].pk if said["project"] else None}
        try:
            share_session(found, request.user, said["right"], **whom, now=timezone.now())
            form = ShareForm(request=request)
            if not asks_for_part(request):
                return redirect("web:session_sharing", session_id)
        except UserError as error:
            blame(form, error)
    return _page(request, found, form)


@signed_in("POST")
def unshare(request: PageRequest, session_id: UUID, share_id: int) -> HttpResponse:
    """Stop sharing the user's session with a person or a project."""
    found = _own(request, session_id)
    try:
        share = unshare_session(found, request.user, share_id)
        text = _("%(name)s is no longer shared with %(whom)s.")
        messages.success(request, text % {"name": found.name, "whom": share.user or share.project})
    except UserError as error:
        messages.error(request, in_words(error.message))
    return redirect("web:session", session_id)


def _own(request: PageRequest, session_id: UUID) -> ComputeSession:
    found = find_session(request, session_id)
    if found.owner_id != request.user.pk:
        raise Http404
    return found


def _page(request: PageRequest, session: ComputeSession, form: ShareForm) -> HttpResponse:
    return box(request, session, "web/_session_sharing.html", {"form": form, "shares": shares_of(session)})
