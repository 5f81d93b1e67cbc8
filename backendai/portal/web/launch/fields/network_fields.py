"""The field of ports to open, besides those of the image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.base.core.service_ports import (
    LARGEST_PREOPEN,
    LEAST_PREOPEN,
    MOST_PREOPEN,
    RESERVED_PORTS,
    check_preopen_ports,
)
from backendai.base.texts.translation import gettext_lazy as _


class PortsField(forms.CharField):
    """A field for a list of port numbers. Rejects those that the image uses."""

    default_error_messages = {"not-a-port": _("%(text)s is not a port: write numbers such as 8080.")}

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        return value if value is None or isinstance(value, str) else ", ".join(map(str, value))

    def clean(self, value: Any) -> Any:
        """Return the ports in their order. Raises ValidationError with an error for each invalid word."""
        words = [word for word in re.split(r"[\s,]+", super().clean(value)) if word]
        ports: list[int] = []
        faults: list[ValidationError] = []
        for word in words:
            if not (word.isascii() and word.isdigit() and len(word) <= 5):
                faults.append(self._fault("not-a-port", text=repr(word[:20])))
                continue
            try:
                check_preopen_ports([*ports, int(word)], ())
            except UserError as error:
                faults.append(ValidationError(error.message, code=error.code))
            else:
                ports.append(int(word))
        if faults:
            raise ValidationError(faults)
        return ports

    def _fault(self, code: str, **params: str) -> ValidationError:
        return ValidationError(self.error_messages[code], code=code, params=params)


class NetworkFields(forms.Form):
    """The ports to open, limited in number."""

    preopen_ports = PortsField(
        required=False,
        max_length=400,
        label=_("Ports to open"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "8080, 9000", "spellcheck": "false"}),
        help_text=_("Numbers from 1024 to 65535, separated by commas or spaces."),
    )

    def ports(self) -> Sequence[int]:
        """Return the requested ports in their order."""
        return self.cleaned_data["preopen_ports"] or ()

    def port_rules(self) -> dict[str, Any]:
        """Return the limits for ports, with which the page's script validates them."""
        return {
            "least": LEAST_PREOPEN,
            "largest": LARGEST_PREOPEN,
            "most": MOST_PREOPEN,
            "reserved": " ".join(map(str, sorted(RESERVED_PORTS))),
        }
