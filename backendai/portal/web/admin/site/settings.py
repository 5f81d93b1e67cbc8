"""The page of the site's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.domain.accounts.policies.amounts_field import AmountsField
from backendai.domain.cluster.groups.session_network import (
    Authority,
    authorities_of,
    clean_authorities,
    clean_hosts,
    clean_url,
    clean_urls,
)
from backendai.domain.cluster.site import change_site, stored_settings
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import digest_of, refuse_unseen

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


class SettingsForm(SessionNetworkFields):
    """The form of all settings of the site."""

    custom_allocation = forms.BooleanField(
        required=False,
        label=_l("Allow custom amounts"),
        help_text=_l("If off, the launch page offers only presets. The API is not affected."),
    )
    agent_select = forms.BooleanField(
        required=False,
        label=_l("Allow choosing the agent"),
        help_text=_l("The launch page lists the agents of each group by name."),
    )
    manual_image = forms.BooleanField(
        required=False,
        label=_l("Allow typing an image name"),
        help_text=_l("Shows an image-name field on the launch page. Users can only enter images they have access to."),
    )
    group_resources_visible = forms.BooleanField(
        required=False,
        label=_l("Show free resources to users"),
        help_text=_l("If off, only superadmins see the bars beside the list of sessions."),
    )
    public_apps = forms.BooleanField(
        required=False,
        label=_l("Allow public apps"),
        help_text=_l(
            "Users can make an app public for a limited time: anyone with the link uses it without signing in."
        ),
    )
    session_shares = forms.BooleanField(
        required=False,
        label=_l("Allow sharing sessions"),
        help_text=_l("Owners can share running sessions with people of their domain and with projects of theirs."),
    )
    container_caps = AmountsField(
        label=_l("Maximum per kernel"),
        help_text=_l("Applies to everyone, in the portal and the API, e.g. cpu=32, mem=256g. Empty: no limit."),
    )
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any = None) -> None:
        self._stored = stored_settings()
        self._version = digest_of(self._stored)
        super().__init__(data, initial={**self._stored, "version": self._version})

    @property
    def authorities(self) -> list[Authority]:
        """The stored certificate authorities."""
        return authorities_of(self._stored["session_authorities"])

    def clean(self) -> dict[str, Any]:
        """Validate the form. Adds an error if the settings were changed after the form was shown."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.pop("version", "") != self._version:
            refuse_unseen(self, self._version, self._stored)
        return cleaned


class SettingsPage(FormPage):
    """The form of the site's settings."""

    section = "settings"
    title = _l("Settings")
    icon = "adjustments-horizontal"
    guide = "the-site"
    template_name = "web/panel/settings.html"
    list_address = "manage:settings"
    submit_label = _l("Save settings")
    saved_text = _l("The settings are saved and in effect.")
    is_atomic = False

    def make_form(self, data: Any = None) -> SettingsForm:
        return SettingsForm(data)

    def save(self, form: SettingsForm) -> Any:
        """Save the changed settings by the service."""
        change_site(self.viewer, form.cleaned_data, now=timezone.now())
        return form.cleaned_data
