"""Allows a program on another computer to sign in, by the code that it shows."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import DeviceRequest
from backendai.domain.accounts.scopes import WORDS, Scope
from backendai.domain.accounts.services.devices import DAYS, allow_request, find_request, refuse_request
from backendai.portal.web.account.menu import blame
from backendai.portal.web.frame.requests import PageRequest, signed_in

_LONGEST_CODE = 32  # with the spaces that people type
_WORDS = {7: _l("7 days"), 30: _l("30 days"), 90: _l("90 days")}
_TYPED = {"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false", "autofocus": True}


class CodeForm(forms.Form):
    """The code that a program shows."""

    code = forms.CharField(
        label=_l("Code"),
        max_length=_LONGEST_CODE,
        widget=forms.TextInput(attrs=_TYPED),
        help_text=_l("Eight letters, which the program shows on the other computer."),
    )


class AllowForm(forms.Form):
    """For how long the program may act."""

    days = forms.TypedChoiceField(
        label=_l("Valid for"), coerce=int, initial="30", choices=[(str(days), _WORDS[days]) for days in DAYS]
    )


@signed_in("GET", "POST")
def device(request: PageRequest) -> HttpResponse:
    """Ask for a code; on POST show which program asks with it, and on an answer allow or refuse it."""
    if request.method != "POST":
        return _page(request, CodeForm(initial={"code": request.GET.get("code", "")[:_LONGEST_CODE]}))
    form = CodeForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    try:
        asking = find_request(
            request.user, form.cleaned_data["code"], request.META.get("REMOTE_ADDR", ""), now=timezone.now()
        )
        return _answer(request, asking)
    except UserError as error:
        blame(form, error)
        return _page(request, form, status=422)


def _answer(request: PageRequest, asking: DeviceRequest) -> HttpResponse:
    answer = request.POST.get("answer", "")
    if answer == "refuse":
        refuse_request(request.user, asking, now=timezone.now())
        messages.success(request, _("The computer is refused."))
        return redirect("web:tokens")
    form = AllowForm(request.POST if answer == "allow" else None)
    if not form.is_valid():
        return _page(request, form, asking=asking, status=422 if form.is_bound else 200)
    allow_request(request.user, asking, form.cleaned_data["days"], now=timezone.now())
    messages.success(
        request, _("The computer is allowed. In a few seconds its token is listed here, where you can revoke it.")
    )
    return redirect("web:tokens")


def _page(
    request: PageRequest, form: forms.Form, *, asking: DeviceRequest | None = None, status: int = 200
) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "asking": asking}
    if asking:
        context["rights"] = [WORDS[Scope(scope)] for scope in asking.scopes]
    return render(request, "web/device.html", context, status=status)
