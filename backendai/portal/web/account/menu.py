"""The menu and the common parts of the user's own account pages."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.core.exceptions import NON_FIELD_ERRORS
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.portal.web.frame.requests import PageRequest


class Entry(NamedTuple):
    """A page in the menu: the name of its URL route, its title, its icon, and its section of the user guide."""

    address: str
    title: str | Promise
    icon: str
    guide: str


MENU = (
    Entry("web:account", _l("Profile and password"), "user", "signing-in"),
    Entry("mfa_index", _l("Sign-in methods"), "shield-check", "signing-in"),
    Entry("web:tokens", _l("Access tokens"), "ticket", "scripts"),
    Entry("web:key_pairs", _l("Key pairs"), "key", "scripts"),
    Entry("web:ssh_keys", _l("SSH keys"), "lock", "ssh-your-own-terminal-files-and-editor"),
    Entry("web:environment", _l("Dotfiles and script"), "file-text", "what-every-session-finds"),
    Entry("web:own_images", _l("My images"), "device-floppy", "saving-it-as-an-image"),
    Entry("web:own_usage", _l("My usage"), "chart-bar", "your-own-usage"),
    Entry("web:notice_choices", _l("Notifications"), "bell", "notifications-of-your-sessions"),
)


def account_page(request: PageRequest, address: str, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """Return the account page with this route of the menu, rendered from the template of the same name."""
    title = next(entry.title for entry in MENU if entry.address == address)
    told = {"section": "account", "menu": MENU, "address": address, "title": title}
    name = address.removeprefix("web:")
    return render(request, f"web/account/{name}.html", context | told, status=status)


def blame(form: Form, error: UserError) -> None:
    """Add the error to the form: at the field that it names, else above the form."""
    form.add_error(error.field if error.field in form.fields else NON_FIELD_ERRORS, error.message)
