"""Forms for the user's own account. They parse the input; the services validate it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.sign_in.adapters import PortalAdapter


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
