"""The user's own account: its data and its password."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.roles import chooses_members
from backendai.domain.accounts.services.key_pairs import main_key_pair
from backendai.domain.accounts.sign_in.adapters import PortalAdapter, has_proved_lately
from backendai.domain.accounts.sign_in.sign_ins import login_moved
from backendai.domain.activity.services import audit
from backendai.portal.web.account.menu import account_page
from backendai.portal.web.dashboard.statistics import ask_statistics, shown_statistics, statistics_file
from backendai.portal.web.frame.requests import PageRequest, signed_in


class PasswordForm(PasswordChangeForm):
    """The current password, and twice the new one."""

    error_messages = PasswordChangeForm.error_messages | {
        "password_incorrect": _l("This is not your current password."),
        "password_mismatch": _l("The two new passwords differ."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        labels = {
            "old_password": _("Current password"),
            "new_password1": _("New password"),
            "new_password2": _("Repeat new password"),
        }
        for name, label in labels.items():
            field = self.fields[name]
            field.label = label
            field.help_text = ""
            field.widget.attrs.pop("autofocus", None)
        self.fields["new_password1"].help_text = _("At least 10 characters, and not a common one.")

    def clean_old_password(self) -> str:
        """Return the current password. Raises ValidationError if it is wrong; wrong ones count as failed sign-ins."""
        old: str = self.cleaned_data["old_password"]
        if not PortalAdapter().reauthenticate(self.user, old):
            raise ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return old


@signed_in("GET")
def account(request: PageRequest) -> HttpResponse:
    """Show the data of the user's account."""
    return _page(request, PasswordForm(request.user))


@signed_in("POST")
def password(request: PageRequest) -> HttpResponse:
    """Change the user's password, which signs the user out of every other browser.

    Asks for a proof of identity first, unless there is one from the last five minutes.
    """
    if not has_proved_lately():
        messages.info(request, _("Confirm that it is you. Then change your password."))
        return redirect(f"{reverse('account_reauthenticate')}?{urlencode({'next': reverse('web:account')})}")
    form = PasswordForm(request.user, request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    with transaction.atomic():
        form.save()
        audit(request.user.pk, "user.change-password", "user", [request.user.pk])
    key = request.session.session_key
    update_session_auth_hash(request, request.user)
    login_moved(key, request)
    messages.success(
        request, _("Your password is changed. Everywhere else you are signed out; access tokens stay valid.")
    )
    return redirect("web:account")


def _page(request: PageRequest, form: PasswordForm, *, status: int = 200) -> HttpResponse:
    context = {
        "password_form": form,
        "may_change_password": has_proved_lately(),
        "main_key_pair": main_key_pair(request.user),
        "chooses_members": chooses_members(request.user),
        "projects": request.user.projects.select_related("domain"),
    }
    return account_page(request, "web:account", context, status=status)


@signed_in("GET")
def usage(request: PageRequest) -> HttpResponseBase:
    """Show the chart and the table, or send the table as a file."""
    form, found = ask_statistics(request.user, request.GET, by="project", is_personal=True)
    if found and request.GET.get("export") == "csv":
        return statistics_file(found)
    managed = request.user.memberships.filter(role="admin").order_by("project__name")
    shown = shown_statistics(form, found, request.GET)
    shown["projects"] = list(managed.values_list("project__name", flat=True))
    return account_page(request, "web:own_usage", shown, status=200 if found else 422)
