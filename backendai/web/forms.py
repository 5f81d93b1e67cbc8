"""Forms about oneself. They read what was typed; services decide whether it can be met."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.forms import PasswordChangeForm
from django.utils import timezone

from backendai.accounts.scopes import WORDS, Scope

_VALIDITIES = [("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("0", "until it is revoked")]


class TokenForm(forms.Form):
    """A new access token: what it is for, and until when."""

    name = forms.CharField(
        max_length=64, label="What is it for?", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    scopes = forms.MultipleChoiceField(
        label="What may it do?",
        required=False,
        initial=[Scope.SESSIONS],
        choices=[(scope.value, WORDS[scope].capitalize()) for scope in Scope if scope != Scope.READ],
        widget=forms.CheckboxSelectMultiple,
        help_text="Every token may look at what you may see.",
    )
    days = forms.TypedChoiceField(label="Valid for", coerce=int, initial="90", choices=_VALIDITIES)

    def expires_at(self) -> datetime | None:
        """Return when it ends, None for never."""
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=days) if days else None


class PasswordForm(PasswordChangeForm):
    """The present password, and twice the new one."""

    error_messages = PasswordChangeForm.error_messages | {
        "password_incorrect": "This is not your present password.",
        "password_mismatch": "The two new passwords differ.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        labels = {"old_password": "Present password", "new_password1": "New password", "new_password2": "Once more"}
        for name, label in labels.items():
            field = self.fields[name]
            field.label = label
            field.help_text = ""
            field.widget.attrs.pop("autofocus", None)
        self.fields["new_password1"].help_text = "At least 10 characters, and not a common one."
