"""The fields of the site's settings for the network of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.domain.cluster.groups.session_network import clean_authorities, clean_hosts, clean_url, clean_urls

_READABLE_BY_ALL = _l("Every user can read the value in a session, a user name and password in the address included.")


class _Checked(forms.CharField):
    """A text field that a function of the settings cleans."""

    def __init__(self, clean: Any, **kwargs: Any) -> None:
        self._clean = clean
        super().__init__(required=False, **kwargs)

    def to_python(self, value: Any) -> Any:
        """Return the cleaned value. Raises ValidationError."""
        try:
            return self._clean("", value or "")
        except UserError as error:
            raise ValidationError(error.message) from error


class LinesField(_Checked):
    """A field for several values, one on each line."""

    def __init__(self, clean: Any, **kwargs: Any) -> None:
        super().__init__(clean, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        return value if isinstance(value, str) or not isinstance(value, Sequence) else "\n".join(value)


class SessionNetworkFields(forms.Form):
    """The fields for certificate authorities, package indexes and proxies."""

    session_authorities = _Checked(
        clean_authorities,
        label=_l("Certificate authorities"),
        help_text=_l(
            "PEM certificates that programs in sessions trust besides the public ones, such as the authority of an "
            "inspecting proxy. Never a private key."
        ),
        widget=forms.Textarea(
            attrs={
                "rows": 6,
                "spellcheck": "false",
                "placeholder": "-----BEGIN CERTIFICATE-----",
                "class": "mono",
            }
        ),
    )
    package_index = _Checked(
        clean_url,
        label=_l("Python package index"),
        help_text=_READABLE_BY_ALL,
        widget=forms.TextInput(attrs={"size": 60, "placeholder": "https://pypi.lab.example/simple"}),
    )
    package_extra_indexes = LinesField(
        clean_urls, label=_l("Additional package indexes"), help_text=_l("One address per line.")
    )
    package_trusted_hosts = LinesField(
        clean_hosts,
        label=_l("Package hosts without a valid certificate"),
        help_text=_l("One host per line. Packages from these hosts are installed without checking the certificate."),
    )
    session_http_proxy = _Checked(
        clean_url,
        label=_l("Proxy for HTTP"),
        help_text=_READABLE_BY_ALL,
        widget=forms.TextInput(attrs={"size": 60, "placeholder": "http://proxy.lab.example:3128"}),
    )
    session_https_proxy = _Checked(
        clean_url,
        label=_l("Proxy for HTTPS"),
        widget=forms.TextInput(attrs={"size": 60, "placeholder": "http://proxy.lab.example:3128"}),
    )
    session_no_proxy = LinesField(
        clean_hosts,
        label=_l("Hosts without proxy"),
        help_text=_l("One host per line. localhost and the kernels of a cluster are always reached directly."),
    )
