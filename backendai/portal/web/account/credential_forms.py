"""Forms for the user's own keys and files. They parse the input; the services validate it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import forms
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _l

from backendai.base.texts.messages import in_words_lazy
from backendai.domain.accounts.scopes import WORDS, Scope

_VALIDITIES = [("30", _l("30 days")), ("90", _l("90 days")), ("365", _l("a year")), ("0", _l("never expires"))]
_PERMISSIONS = [
    ("644", _l("644: a file")),
    ("600", _l("600: a private file")),
    ("755", _l("755: a program")),
    ("700", _l("700: a private program")),
]
_CODE = {"spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}


class TokenForm(forms.Form):
    """A new access token: its name, scopes and lifetime."""

    name = forms.CharField(max_length=64, label=_l("Name"), widget=forms.TextInput(attrs={"autocomplete": "off"}))
    days = forms.TypedChoiceField(label=_l("Valid for"), coerce=int, initial="90", choices=_VALIDITIES)
    scopes = forms.MultipleChoiceField(
        label=_l("Scopes"),
        required=False,
        initial=[Scope.SESSIONS],
        choices=[(scope.value, capfirst(in_words_lazy(WORDS[scope]))) for scope in Scope if scope != Scope.READ],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        help_text=_l("All tokens can read what you can read."),
    )

    def expires_at(self) -> datetime | None:
        """Return the expiry of the token, or None for never."""
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=days) if days else None


class KeyPairForm(forms.Form):
    """A new key pair."""

    name = forms.CharField(max_length=64, label=_l("Name"), widget=forms.TextInput(attrs={"autocomplete": "off"}))


class SshKeyForm(forms.Form):
    """A public key."""

    public_key = forms.CharField(
        label=_l("Public key"),
        max_length=8192,
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "ssh-ed25519 AAAA… you@laptop", **_CODE}),
        help_text=_l("The line of a file such as ~/.ssh/id_ed25519.pub; ssh-keygen -t ed25519 creates one."),
    )
    name = forms.CharField(
        label=_l("Name"), max_length=64, required=False, help_text=_l("Usually the comment at its end.")
    )
    proof = forms.CharField(
        label=_l("Proof"),
        max_length=8192,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "-----BEGIN SSH SIGNATURE-----", **_CODE}),
        help_text=_l("Only for a key that another account has: a signature made with it."),
    )


class DotfileForm(forms.Form):
    """A file for the home folder."""

    path = forms.CharField(
        label=_l("Path in the home folder"),
        max_length=255,
        strip=False,
        widget=forms.TextInput(attrs={"placeholder": ".bashrc", **_CODE}),
    )
    permission = forms.ChoiceField(
        label=_l("Permission"),
        initial="644",
        choices=_PERMISSIONS,
    )
    content = forms.CharField(
        label=_l("Content"), required=False, strip=False, widget=forms.Textarea(attrs={"rows": 14, **_CODE})
    )

    def clean_content(self) -> str:
        """Return the text with Unix line ends, as browsers send Windows ones."""
        return str(self.cleaned_data["content"]).replace("\r\n", "\n")


class ScriptForm(forms.Form):
    """The bootstrap script."""

    content = forms.CharField(
        label=_l("Script"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "placeholder": "#!/bin/sh", **_CODE}),
        help_text=_l(
            "Runs once in each kernel, before your program and your first terminal. Its output is in the log."
        ),
    )
