"""Forms of inference endpoints. The services validate the values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.spec import MountRequest
from backendai.domain.serving.model_definition import read_model_definition
from backendai.domain.serving.models import MOST_REPLICAS, Revision
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec
from backendai.portal.web.endpoints.request_fields import OF_ACCESS, OF_REQUESTS, OF_UPDATES, RequestFields
from backendai.portal.web.launch.fields.presets import typed_amounts

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_OF_MODEL = ("image", "command", "port", "probe_path", "model_name", "mounts", "environ")
_OF_SIZE = ("cpu", "mem", "accelerators")
_LARGEST_DEFINITION = 64 * 1024
HIDDEN = "••••••"  # in the place of a variable's value, which stays


class RevisionForm(forms.Form):
    """The image, command and amounts of each replica."""

    image = forms.ChoiceField(label=_l("Image"))
    command = forms.CharField(
        label=_l("Command"),
        max_length=2**16,
        widget=forms.Textarea(attrs={"rows": 4, "class": "mono", **_PLAIN}),
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
        widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "placeholder": "NAME=value", **_PLAIN}),
        help_text=_l("One per line."),
    )

    mounts = forms.CharField(
        label=_l("Folders"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "placeholder": "models:/models", **_PLAIN}),
        help_text=_l("One per line: the name of a folder, optionally with a path. Replicas only read them."),
    )

    field_order = (*_OF_MODEL, *_OF_SIZE)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        images = Image.objects.usable_by(user).usable_in(user.domain_id or 0).order_by("name")
        names = [(one.name, one.title or one.name) for one in images]
        self.fields["image"].choices = names  # type: ignore[attr-defined]

    def clean_accelerators(self) -> dict[str, str]:
        """Return the amounts of accelerators by slot."""
        return _pairs(self.cleaned_data["accelerators"].replace(",", " ").split())

    def clean_mounts(self) -> list[MountRequest]:
        """Return the folders to mount, with their paths."""
        return [_mount_of(line) for line in self.cleaned_data["mounts"].splitlines() if line.strip()]

    def clean_environ(self) -> dict[str, str]:
        """Return the environment variables."""
        return _pairs(line for line in self.cleaned_data["environ"].splitlines() if line.strip())

    def revision(self) -> RevisionSpec:
        """Return the requested revision."""
        data = self.cleaned_data
        return RevisionSpec(
            image=data["image"],
            command=data["command"].replace("\r\n", "\n"),  # browsers send both, and a shell takes the first for a name
            port=data["port"],
            environ=data["environ"],
            resources={"cpu": str(data["cpu"]), "mem": data["mem"], **data["accelerators"]},
            probe_path=data["probe_path"],
            model_name=data["model_name"],
            mounts=data["mounts"],
        )


class EndpointForm(RequestFields, RevisionForm):
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
        help_text=_l("0: no replica while there are no requests."),
    )
    maximum = forms.IntegerField(label=_l("Maximum replicas"), initial=1, min_value=1, max_value=MOST_REPLICAS)
    target = forms.FloatField(
        label=_l("Concurrent requests per replica"),
        initial=4,
        help_text=_l("With more requests, more replicas start."),
    )

    asleep_minutes = forms.FloatField(
        label=_l("Minutes without requests until the last replica ends"),
        initial=15,
        min_value=0.1,
        max_value=43200,
        help_text=_l("Counts where the minimum is 0. The next request starts a replica."),
    )
    definition = forms.CharField(
        label=_l("Model definition"),
        required=False,
        max_length=_LARGEST_DEFINITION,
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono", **_PLAIN}),
        help_text=_l("The text of a model-definition.yaml."),
    )
    definition_file = forms.FileField(label=_l("File"), required=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, user=user, **kwargs)
        self._user = user
        self.fields["project"].queryset = Project.objects.usable_by(user).order_by("name")  # type: ignore[attr-defined]
        groups = ResourceGroup.objects.visible_to(user).filter(is_active=True).order_by("name")
        names = [(one.name, one.name) for one in groups]
        self.fields["resource_group"].choices = [("", _l("default")), *names]  # type: ignore[attr-defined]

    @property
    def sections(self) -> list[tuple[str, list[forms.BoundField], bool]]:
        """Return the steps of the form: title, fields, and whether the step is folded, as few people change it."""
        named = [
            (_("Model"), ("name", "project", *_OF_MODEL)),
            (_("Amounts of each replica"), ("resource_group", *_OF_SIZE)),
            (_("Scaling"), ("minimum", "maximum", "target", "asleep_minutes")),
            (_("Access"), OF_ACCESS),
            (_("Requests"), OF_REQUESTS),
            (_("Updates"), OF_UPDATES),
        ]
        found = [(title, self.of(names)) for title, names in named]
        rare = {_("Requests"), _("Updates")}
        return [(title, of, title in rare and not any(one.errors for one in of)) for title, of in found]

    def filled_in(self) -> tuple[EndpointForm, tuple[Message, ...]]:
        """Return the form filled from the model definition, with notes about ignored parts. Raises UserError."""
        file = self.files.get("definition_file")
        text = file.read(_LARGEST_DEFINITION + 1).decode(errors="replace") if file else self.data.get("definition", "")
        found = read_model_definition(text)
        told = {"model_name": found.name, "command": found.command, "port": found.port, "probe_path": found.probe_path}
        typed = {name: self.data.get(name) for name in self.fields if name in self.data}
        typed |= {name: value for name, value in told.items() if value not in (None, "")}
        if not typed.get("name"):
            typed["name"] = slug_of(found.name)
        return type(self)(initial=typed | {"definition": text}, user=self._user), found.notes

    def spec(self) -> EndpointSpec:
        """Return the requested endpoint."""
        data = self.cleaned_data
        return EndpointSpec(
            name=data["name"],
            revision=self.revision(),
            project=str(data["project"].pk) if data["project"] else "",
            resource_group=data["resource_group"],
            minimum=data["minimum"],
            maximum=data["maximum"],
            target=data["target"],
            asleep_after=data["asleep_minutes"] * 60,
            **self.settings(),
        )


def initial_of(revision: Revision, *, reveals: bool) -> dict[str, Any]:
    """Return the form's initial values from a revision.

    Without ``reveals`` the values of variables are hidden, as only the owner may read possible secrets.
    """
    slots = typed_amounts(Slots.parse(revision.slots))
    return {
        "image": revision.image.name,
        "command": revision.command,
        "port": revision.port,
        "probe_path": revision.probe_path,
        "model_name": revision.model_name,
        "cpu": slots.pop("cpu", 0),
        "mem": slots.pop("mem", "0"),
        "accelerators": " ".join(f"{slot}={amount}" for slot, amount in slots.items()),
        "mounts": "\n".join(_mount_line(one) for one in revision.mounts),
        "environ": "\n".join(f"{name}={value if reveals else HIDDEN}" for name, value in revision.environ.items()),
    }


def revision_after(current: Revision, spec: RevisionSpec) -> RevisionSpec:
    """Return the typed revision. Hidden values and settings missing in the form come from the current revision."""
    environ = {
        name: current.environ[name] if value == HIDDEN and name in current.environ else value
        for name, value in spec.environ.items()
    }
    return replace(
        spec,
        environ=environ,
        cluster_size=current.cluster_size,
        cluster_mode=current.cluster_mode,
        startup_timeout=current.startup_timeout.total_seconds(),
        drain_timeout=current.drain_timeout.total_seconds(),
    )


def slug_of(name: str) -> str:
    """Return an endpoint name made from this model name; empty if no allowed letter is left."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")


def _mount_of(line: str) -> MountRequest:
    source, _colon, target = line.strip().partition(":")
    folder, _slash, path = source.strip().partition("/")
    return MountRequest(folder, path=path, target=target.strip())


def _mount_line(mount: Mapping[str, str]) -> str:
    source = "/".join(filter(None, (mount["folder"], mount.get("path"))))
    return ":".join(filter(None, (source, mount.get("target"))))


def _pairs(parts: Any) -> dict[str, str]:
    found = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise forms.ValidationError(_("Write NAME=VALUE."))
        found[name.strip()] = value.strip()
    return found
