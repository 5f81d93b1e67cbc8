"""Accepts an invitation, with a new account or with the user's own."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from backendai.base.core.errors import UserError
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Invitation, User
from backendai.domain.accounts.services import accept_as, accept_as_new, digest_of, open_invitation
from backendai.domain.accounts.sign_in.sign_ins import expire_soon
from backendai.portal.web.sign_in.forms import LoginForm

_KEY = "invitation"
_LONGEST_TEXT = 100


class NewAccountForm(forms.Form):
    """The name of a new account, and its password twice."""

    full_name = forms.CharField(
        label=_l("Your name"), max_length=128, required=False, widget=forms.TextInput(attrs={"autocomplete": "name"})
    )
    password = forms.CharField(
        label=_l("Password"),
        max_length=128,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_l("At least 10 characters, and not a common one."),
    )
    again = forms.CharField(
        label=_l("Repeat password"),
        max_length=128,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error if the passwords differ."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("password") and cleaned.get("again") and cleaned["password"] != cleaned["again"]:
            self.add_error("again", _("The two passwords differ."))
        return cleaned


@require_safe
@never_cache
def opened(request: HttpRequest, text: str) -> HttpResponse:
    """Store the invitation in the browser's session, and redirect to an address without its secret.

    So the secret stays out of the browser's history and of Referer headers.
    """
    digest = digest_of(text[:_LONGEST_TEXT])
    try:
        open_invitation(digest, now=timezone.now())
    except UserError as error:  # nothing is kept of a link that anybody may have made up
        return _page(request, {"problem": error.message}, status=410)
    request.session[_KEY] = digest
    expire_soon(request)
    answer = redirect("web:invitation")
    answer["Referrer-Policy"] = "no-referrer"
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters("password", "again")
def invitation(request: HttpRequest) -> HttpResponse:
    """Show an invitation; on POST accept it."""
    digest = request.session.get(_KEY, "")
    try:
        found = open_invitation(digest, now=timezone.now())
    except UserError as error:
        request.session.pop(_KEY, None)
        return _page(request, {"problem": error.message}, status=410)
    user = request.user if isinstance(request.user, User) else None
    if user is not None:
        return _as(request, user, found, digest)
    if User.objects.filter(email=found.email).exists():
        return _page(request, {"invitation": found, "must_sign_in": True})
    return _as_new(request, found, digest)


def _as(request: HttpRequest, user: User, found: Invitation, digest: str) -> HttpResponse:
    context: dict[str, Any] = {"invitation": found, "is_own": user.email == found.email, "other": user.email}
    if request.method != "POST":
        return _page(request, context)
    try:
        project = accept_as(user, digest, now=timezone.now())
    except UserError as error:
        return _page(request, context | {"problem": error.message}, status=409)
    request.session.pop(_KEY, None)
    messages.success(request, _("You are now a member of project %(name)s.") % {"name": project.name})
    return redirect("web:sessions")


def _as_new(request: HttpRequest, found: Invitation, digest: str) -> HttpResponse:
    form = NewAccountForm(request.POST if request.method == "POST" else None, initial={"full_name": found.full_name})
    if request.method != "POST" or not form.is_valid():
        return _page(request, {"invitation": found, "form": form}, status=422 if form.is_bound else 200)
    said = form.cleaned_data
    try:
        user = accept_as_new(digest, full_name=said["full_name"], password=said["password"], now=timezone.now())
    except UserError as error:
        form.add_error(error.field if error.field in form.fields else None, error.message)
        return _page(request, {"invitation": found, "form": form}, status=422)
    request.session.pop(_KEY, None)
    messages.success(request, _("Welcome. You are a member of project %(name)s.") % {"name": found.project.name})
    # What counts when people sign in (second factors, the number of logins) counts here.
    form = LoginForm({"username": user.email, "password": said["password"]}, request=request)
    return form.login(request) if form.is_valid() else redirect("web:login")


def _page(request: HttpRequest, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    return render(request, "web/invitation.html", context, status=status)
