"""Forms about oneself. They read what was typed; services decide whether it can be met."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import PasswordChangeForm
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l


class PasswordForm(PasswordChangeForm):
    """The present password, and twice the new one."""

    error_messages = PasswordChangeForm.error_messages | {
        "password_incorrect": _l("This is not your present password."),
        "password_mismatch": _l("The two new passwords differ."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        labels = {
            "old_password": _("Present password"),
            "new_password1": _("New password"),
            "new_password2": _("Once more"),
        }
        for name, label in labels.items():
            field = self.fields[name]
            field.label = label
            field.help_text = ""
            field.widget.attrs.pop("autofocus", None)
        self.fields["new_password1"].help_text = _("At least 10 characters, and not a common one.")
