"""Forms for signing in and up, and for second factors."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

from allauth.account import forms as account_forms
from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base import forms as factor_forms
from allauth.mfa.totp import forms as totp_forms
from allauth.mfa.webauthn import forms as passkey_forms
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.known_browsers import is_known
from backendai.domain.accounts.sign_in.logins import begin_login, end_login
from backendai.domain.accounts.sign_in.second_factors import spend_code

_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, EOFError, struct.error)


class LoginForm(account_forms.LoginForm):
    """E-mail address and password. The first field is named ``username``, as browsers and scripts expect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        attributes = {"autocomplete": "username"}
        email = forms.EmailField(label=_("E-mail address"), max_length=254, widget=forms.EmailInput(attrs=attributes))
        password = self.fields["password"]
        # After a rejected attempt the address is kept, and the password is to be typed again.
        (password if self.data.get("username") else email).widget.attrs["autofocus"] = True
        password.label, password.help_text = _("Password"), ""
        password.widget.attrs.pop("placeholder", None)
        self.fields.clear()
        self.fields.update(username=email, password=password)

    def user_credentials(self) -> dict[str, str]:
        """Return the credentials for the authentication backend."""
        email = self.cleaned_data["login"] = self.cleaned_data["username"].strip()  # allauth looks for ``login``
        return {"email": email, "password": self.cleaned_data["password"]}


class _CountedCode:
    """A code of an app, or a recovery code. Wrong codes count as failed sign-ins, and each code is valid once."""

    user: User
    cleaned_data: dict[str, Any]

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        name, address = f"second factor of {self.user.pk}", context.request.META.get("REMOTE_ADDR", "")
        everywhere = not is_known(context.request, self.user.email)
        if wait := begin_login(name, address, now=timezone.now(), everywhere=everywhere):
            text = _("Too many attempts. Try again in %(seconds)s seconds.") % {
                "seconds": f"{wait.total_seconds():.0f}"
            }
            raise forms.ValidationError(text, code="too-many-attempts")
        factor = spend_code(self.user, code)
        if factor is None:
            self._tell_of_failure()
            raise get_adapter().validation_error("incorrect_code")
        end_login(name, address, everywhere=everywhere)
        factor.user = self.user
        self.authenticator = factor
        return code

    def _tell_of_failure(self) -> None:
        main = factor_forms.Authenticator.objects.filter(user=self.user).exclude(type="webauthn").order_by("-type")
        if found := main.first():
            self._emit_authentication_failed(found)  # type: ignore[attr-defined]


class CodeForm(_CountedCode, factor_forms.AuthenticateForm):
    """A code as the second step of signing in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _dress_code(self.fields["code"], _("Six digits of an app, or one of the recovery codes."))


class CodeAgainForm(_CountedCode, factor_forms.ReauthenticateForm):
    """A code as a repeated proof of identity."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _dress_code(self.fields["code"], _("Six digits of the app, or one of the recovery codes."))


class FirstCodeForm(totp_forms.ActivateTOTPForm):
    """The first code of an app, which proves that it was set up correctly."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _dress_code(self.fields["code"], _("Six digits that the app shows now."))


class _AnyAnswer:
    """A mixin that treats an unreadable answer of a browser as wrong instead of as an internal error."""

    def clean_credential(self) -> Any:
        """Return the factor that gave the answer. Raises ValidationError for a wrong one."""
        try:
            return super().clean_credential()  # type: ignore[misc]
        except _UNREADABLE as error:
            raise get_adapter().validation_error("incorrect_code") from error


class PasskeyLoginForm(_AnyAnswer, passkey_forms.LoginWebAuthnForm):
    """A passkey for signing in."""


class PasskeyStepForm(_AnyAnswer, passkey_forms.AuthenticateWebAuthnForm):
    """A passkey as the second factor."""


class PasskeyAgainForm(_AnyAnswer, passkey_forms.ReauthenticateWebAuthnForm):
    """A passkey as a repeated proof of identity."""


class PasskeyForm(passkey_forms.AddWebAuthnForm):
    """A new passkey."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].label = _("Name")
        self.fields["name"].max_length = 64
        self.fields["name"].help_text = _("A name to recognise it by, such as the name of the device.")
        passwordless = self.fields["passwordless"]
        passwordless.label, passwordless.initial = _("Sign in with it alone, without the password"), True
        passwordless.help_text = _(
            "It then asks for a fingerprint, a face or a PIN. Otherwise it is only a second factor."
        )

    def clean(self) -> dict[str, Any]:
        """Return the fields after verifying the new credential. Raises ValidationError."""
        try:
            return super().clean()
        except _UNREADABLE as error:
            raise get_adapter().validation_error("incorrect_code") from error


class SignUpForm(forms.Form):
    """A request for an account."""

    email = forms.EmailField(label=_l("E-mail address"), max_length=254)
    full_name = forms.CharField(label=_l("Your name"), max_length=128)
    password = forms.CharField(
        label=_l("Password"),
        strip=False,
        max_length=1024,
        help_text=_l("At least 10 characters, and not a common one."),
    )
    again = forms.CharField(label=_l("Repeat password"), strip=False, max_length=1024)
    _kinds: ClassVar[dict[str, str]] = {
        "email": "username", "full_name": "name", "password": "new-password", "again": "new-password"
    }  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, kind in self._kinds.items():
            widget = forms.PasswordInput if kind == "new-password" else self.fields[name].widget.__class__
            self.fields[name].widget = widget(attrs={"autocomplete": kind})

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error if the passwords differ or are too weak."""
        found = super().clean() or {}
        password = found.get("password")
        if password and found.get("again") is not None and password != found["again"]:
            self.add_error("again", _("The two passwords differ."))
        elif password:
            try:
                validate_password(password, User(email=found.get("email", ""), full_name=found.get("full_name", "")))
            except forms.ValidationError as error:
                self.add_error("password", error)
        return found


def _dress_code(field: forms.Field, text: str) -> None:
    field.label, field.help_text = _("Code"), text
    field.widget.attrs = {"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True, "maxlength": 16}
