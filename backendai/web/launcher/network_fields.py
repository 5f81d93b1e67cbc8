"""Fields of the network: ports that are opened beside those of the image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _


class PortsField(forms.CharField):
    """Becomes a list of numbers; which of them can be opened is the services' to say."""

    default_error_messages = {"not-a-port": _("%(text)s is not a port: write numbers such as 8080.")}

    def prepare_value(self, value: Any) -> Any:
        """Return what the input shows."""
        return value if value is None or isinstance(value, str) else ", ".join(map(str, value))

    def clean(self, value: Any) -> Any:
        """Return the ports in their order; refuses what is no number."""
        words = re.split(r"[\s,]+", super().clean(value).strip(", \t\r\n"))
        return [self._port(word) for word in words if word]

    def _port(self, word: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 5):
            raise ValidationError(
                self.error_messages["not-a-port"], code="not-a-port", params={"text": repr(word[:20])}
            )
        return int(word)


class NetworkFields(forms.Form):
    """The ports, as many as the platform allows."""

    preopen_ports = PortsField(
        required=False,
        max_length=400,
        label=_("Ports to open"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "8080, 9000", "spellcheck": "false"}),
        help_text=_("Separated by commas or spaces. What listens there is opened like an app of the session."),
    )

    def ports(self) -> Sequence[int]:
        """Return the ports that were asked for, in their order."""
        return self.cleaned_data["preopen_ports"] or ()
