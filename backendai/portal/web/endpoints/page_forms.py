"""The forms on the page of an endpoint. The services validate the values."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import User
from backendai.domain.serving.models import MOST_REPLICAS
from backendai.domain.serving.rule_kinds import RULE_KINDS

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class ScaleForm(forms.Form):
    """The limits of the number of replicas."""

    minimum = forms.IntegerField(label=_l("Minimum replicas"), min_value=0, max_value=MOST_REPLICAS)
    maximum = forms.IntegerField(label=_l("Maximum replicas"), min_value=1, max_value=MOST_REPLICAS)
    target = forms.FloatField(label=_l("Concurrent requests per replica"))
    asleep_minutes = forms.FloatField(
        label=_l("Minutes without requests until the last replica ends"),
        required=False,
        min_value=0.1,
        max_value=43200,
        help_text=_l("Counts where the minimum is 0. The next request starts a replica."),
    )


class RuleForm(forms.Form):
    """A new scaling rule of an endpoint."""

    metric = forms.ChoiceField(label=_l("Value"))
    query = forms.CharField(
        label=_l("Query"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(_PLAIN),
        help_text=_l("Of Prometheus, with one number as its result. $endpoint and $project stand for their names."),
    )
    up_over = forms.FloatField(label=_l("Scale up above"), required=False)
    down_under = forms.FloatField(label=_l("Scale down below"), required=False)
    step = forms.IntegerField(label=_l("Replicas at a time"), initial=1, min_value=1, max_value=MOST_REPLICAS)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = [kind for kind in RULE_KINDS.values() if kind.is_offered_to(user)]
        choices = [(kind.name, in_words(kind.title)) for kind in offered]
        self.fields["metric"].choices = choices  # type: ignore[attr-defined]
        if not any(kind.has_query for kind in offered):
            del self.fields["query"]


class TokenForm(forms.Form):
    """A new token of an endpoint."""

    token_name = forms.CharField(label=_l("Name"), max_length=64, widget=forms.TextInput(_PLAIN))
    days = forms.IntegerField(label=_l("Valid for days"), required=False, min_value=1, max_value=3650)
    per_minute = forms.IntegerField(label=_l("Requests per minute"), required=False, min_value=0, max_value=10**6)
    opens_all = forms.BooleanField(label=_l("Opens all endpoints of the owner, also later ones"), required=False)

    def values(self) -> dict[str, Any]:
        """Return the token's values for the service."""
        data = self.cleaned_data
        ends = timezone.now() + timedelta(days=data["days"]) if data["days"] else None
        return {
            "name": data["token_name"],
            "expires_at": ends,
            "per_minute": data["per_minute"] or 0,
            "opens_all": data["opens_all"],
        }
