"""Fields for the requests, updates and access of an endpoint, on the wizard and its page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _l

from backendai.domain.serving.models import MOST_REPLICAS, Endpoint

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
OF_ACCESS = ("is_public", "origins")
OF_REQUESTS = (
    "concurrency", "queue", "queue_seconds", "hold_seconds", "answer_timeout", "is_repeatable", "affinity",
)  # fmt: skip
OF_UPDATES = ("max_surge", "max_unavailable", "canary", "warm_up")


class RequestFields(forms.Form):
    """Form fields for requests, updates and access; the services limit their values.

    Empty fields keep the current or default value.
    """

    is_public = forms.BooleanField(label=_l("Public: anybody may send requests, without a token"), required=False)
    origins = forms.CharField(
        label=_l("Pages that may send requests"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "placeholder": "https://chat.example.org", **_PLAIN}),
        help_text=_l("Origins, one per line. Browsers refuse other pages."),
    )
    concurrency = forms.IntegerField(
        label=_l("Maximum requests at once of a replica"),
        initial=0,
        min_value=0,
        help_text=_l("0: unlimited."),
    )
    queue = forms.IntegerField(label=_l("Maximum requests that wait"), initial=100, min_value=0)
    queue_seconds = forms.FloatField(label=_l("Seconds that a request waits for a free replica"), initial=30)
    hold_seconds = forms.FloatField(
        label=_l("Seconds that a request waits for the first replica"),
        initial=60,
        help_text=_l("Choose more than a start takes: then requests to an endpoint without replicas are answered."),
    )
    answer_timeout = forms.FloatField(label=_l("Seconds of silence after which a request fails"), initial=600)
    is_repeatable = forms.BooleanField(
        label=_l("Requests may be sent again to another replica when one breaks off"), required=False
    )
    affinity = forms.CharField(
        label=_l("Header that keeps requests on one replica"),
        required=False,
        max_length=64,
        widget=forms.TextInput(attrs={"placeholder": "X-Conversation", **_PLAIN}),
    )
    max_surge = forms.IntegerField(
        label=_l("Additional replicas during an update"),
        initial=1,
        min_value=0,
        max_value=MOST_REPLICAS,
    )
    max_unavailable = forms.IntegerField(
        label=_l("Missing replicas during an update"),
        initial=0,
        min_value=0,
        max_value=MOST_REPLICAS,
        help_text=_l("1 or more: an old replica may end before its successor serves."),
    )
    canary = forms.IntegerField(
        label=_l("Per cent of requests for a new revision"),
        initial=0,
        min_value=0,
        max_value=100,
        help_text=_l("0: as many as for an old replica."),
    )
    warm_up = forms.FloatField(label=_l("Seconds in which a new replica comes to its full share"), initial=0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in (*OF_REQUESTS, *OF_UPDATES):
            self.fields[name].required = False
        if not settings.SERVING_PUBLIC:
            del self.fields["is_public"]

    def clean_origins(self) -> list[str]:
        """Return the origins as a list."""
        return list(self.cleaned_data["origins"].split())

    def of(self, names: tuple[str, ...]) -> list[forms.BoundField]:
        """Return the form's fields among these names."""
        return [self[name] for name in names if name in self.fields]

    def settings(self) -> dict[str, Any]:
        """Return the entered values by the endpoint's field names."""
        names = (*OF_ACCESS, *OF_REQUESTS, *OF_UPDATES)
        return {name: value for name in names if (value := self.cleaned_data.get(name)) is not None}


class SettingsForm(RequestFields):
    """The fields for requests, updates and access of an existing endpoint."""

    @classmethod
    def showing(cls, endpoint: Endpoint) -> SettingsForm:
        """Return the form with the endpoint's current values."""
        shown = {name: getattr(endpoint, name) for name in (*OF_ACCESS, *OF_REQUESTS, *OF_UPDATES)}
        return cls(initial=shown | {"origins": "\n".join(endpoint.origins)})

    @property
    def access(self) -> list[forms.BoundField]:
        """Return the fields for access."""
        return self.of(OF_ACCESS)

    @property
    def requests(self) -> list[forms.BoundField]:
        """Return the fields for requests."""
        return self.of(OF_REQUESTS)

    @property
    def updates(self) -> list[forms.BoundField]:
        """Return the fields for updates."""
        return self.of(OF_UPDATES)
