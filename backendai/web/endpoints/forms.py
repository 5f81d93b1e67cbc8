"""Forms of inference endpoints; the rules are those of the services."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.accounts.models import Project, User
from backendai.catalog.models import Image
from backendai.cluster.models import ResourceGroup
from backendai.serving.models import MOST_REPLICAS, Revision
from backendai.serving.spec import EndpointSpec, RevisionSpec
from backendai.texts.translation import gettext as _

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_OF_REVISION = ("image", "command", "port", "probe_path", "model_name", "cpu", "mem", "accelerators", "environ")


class RevisionForm(forms.Form):
    """What each replica runs."""

    image = forms.ChoiceField(label=_l("Image"))
    command = forms.CharField(
        label=_l("Command"),
        max_length=2**16,
        widget=forms.Textarea(attrs={"rows": 3, **_PLAIN}),
        help_text=_l("Starts the model server. The variable PORT contains its port."),
    )
    port = forms.IntegerField(label=_l("Port"), min_value=1, max_value=65535, initial=8000)
    probe_path = forms.CharField(
        label=_l("Health path"),
        required=False,
        initial="/health",
        max_length=255,
        help_text=_l("The server answers here when it is ready. Empty: an open port is enough."),
    )
    model_name = forms.CharField(label=_l("Model name"), required=False, max_length=128)
    cpu = forms.DecimalField(label=_l("CPU cores"), initial=2, min_value=0, max_value=10_000)
    mem = forms.CharField(label=_l("Memory"), initial="4g", max_length=20)
    accelerators = forms.CharField(
        label=_l("Accelerators"),
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"placeholder": "cuda.device=1", **_PLAIN}),
    )
    environ = forms.CharField(
        label=_l("Variables"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "placeholder": "NAME=value", **_PLAIN}),
        help_text=_l("One per line."),
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        images = Image.objects.usable_by(user).usable_in(user.domain_id or 0).order_by("name")
        names = [(one.name, one.title or one.name) for one in images]
        self.fields["image"].choices = names  # type: ignore[attr-defined]

    def clean_accelerators(self) -> dict[str, str]:
        """Return slots with amounts."""
        return _pairs(self.cleaned_data["accelerators"].replace(",", " ").split())

    def clean_environ(self) -> dict[str, str]:
        """Return variables with values."""
        return _pairs(line for line in self.cleaned_data["environ"].splitlines() if line.strip())

    def revision(self) -> RevisionSpec:
        """Return what was asked for."""
        data = self.cleaned_data
        return RevisionSpec(
            image=data["image"],
            command=data["command"],
            port=data["port"],
            environ=data["environ"],
            resources={"cpu": str(data["cpu"]), "mem": data["mem"], **data["accelerators"]},
            probe_path=data["probe_path"],
            model_name=data["model_name"],
        )


class EndpointForm(RevisionForm):
    """A new endpoint."""

    name = forms.CharField(
        label=_l("Name"),
        max_length=40,
        widget=forms.TextInput(_PLAIN),
        help_text=_l("Lower-case letters, digits and dashes. Part of the address."),
    )
    project = forms.ModelChoiceField(Project.objects.none(), label=_l("Project"), required=False, empty_label=None)
    resource_group = forms.ChoiceField(label=_l("Resource group"), required=False)
    minimum = forms.IntegerField(
        label=_l("Minimum replicas"),
        initial=1,
        min_value=0,
        max_value=MOST_REPLICAS,
        help_text=_l("0: replicas stop after 15 minutes without requests; the next request starts one."),
    )
    maximum = forms.IntegerField(label=_l("Maximum replicas"), initial=1, min_value=1, max_value=MOST_REPLICAS)
    target = forms.FloatField(
        label=_l("Concurrent requests per replica"),
        initial=4,
        help_text=_l("With more requests, more replicas start."),
    )

    field_order = ["name", "project", "resource_group", *_OF_REVISION]

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, user=user, **kwargs)
        self.fields["project"].queryset = Project.objects.usable_by(user).order_by("name")  # type: ignore[attr-defined]
        groups = ResourceGroup.objects.visible_to(user).filter(is_active=True).order_by("name")
        names = [(one.name, one.name) for one in groups]
        self.fields["resource_group"].choices = [("", _l("default")), *names]  # type: ignore[attr-defined]

    def spec(self) -> EndpointSpec:
        """Return what was asked for."""
        data = self.cleaned_data
        return EndpointSpec(
            name=data["name"],
            revision=self.revision(),
            project=str(data["project"].pk) if data["project"] else "",
            resource_group=data["resource_group"],
            minimum=data["minimum"],
            maximum=data["maximum"],
            target=data["target"],
        )


class ScaleForm(forms.Form):
    """How many replicas."""

    minimum = forms.IntegerField(label=_l("Minimum replicas"), min_value=0, max_value=MOST_REPLICAS)
    maximum = forms.IntegerField(label=_l("Maximum replicas"), min_value=1, max_value=MOST_REPLICAS)
    target = forms.FloatField(label=_l("Concurrent requests per replica"))


class TokenForm(forms.Form):
    """A new token of an endpoint."""

    token_name = forms.CharField(label=_l("Name"), max_length=64, widget=forms.TextInput(_PLAIN))
    days = forms.IntegerField(label=_l("Valid for days"), required=False, min_value=1, max_value=3650)
    per_minute = forms.IntegerField(label=_l("Requests per minute"), required=False, min_value=0, max_value=10**6)
    opens_all = forms.BooleanField(label=_l("Opens all endpoints of the owner, also later ones"), required=False)

    def values(self) -> dict[str, Any]:
        """Return what the service takes."""
        data = self.cleaned_data
        ends = timezone.now() + timedelta(days=data["days"]) if data["days"] else None
        return {
            "name": data["token_name"],
            "expires_at": ends,
            "per_minute": data["per_minute"] or 0,
            "opens_all": data["opens_all"],
        }


def initial_of(revision: Revision) -> dict[str, Any]:
    """Return what the form shows of a revision."""
    slots = dict(revision.slots)
    return {
        "image": revision.image.name,
        "command": revision.command,
        "port": revision.port,
        "probe_path": revision.probe_path,
        "model_name": revision.model_name,
        "cpu": slots.pop("cpu", 0),
        "mem": slots.pop("mem", "0"),
        "accelerators": " ".join(f"{slot}={amount}" for slot, amount in slots.items()),
        "environ": "\n".join(f"{name}={value}" for name, value in revision.environ.items()),
    }


def _pairs(parts: Any) -> dict[str, str]:
    found = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise forms.ValidationError(_("Write NAME=VALUE."))
        found[name.strip()] = value.strip()
    return found
