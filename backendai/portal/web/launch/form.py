"""The launch form. Its fields are defined by step, in the modules of its bases."""

from __future__ import annotations

import zoneinfo
from collections.abc import Collection
from datetime import tzinfo
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from backendai.base.core.errors import UserError
from backendai.base.core.session_kinds import KINDS
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.create import check_names
from backendai.domain.compute.spec import SessionSpec
from backendai.portal.web.frame.label_fields import LabelFields
from backendai.portal.web.launch.field_table import LAUNCH_FIELDS
from backendai.portal.web.launch.fields.allocation_fields import AllocationFields
from backendai.portal.web.launch.fields.environment_fields import EnvironmentFields, ThreadFields
from backendai.portal.web.launch.fields.file_fields import UPLOAD, FileFields
from backendai.portal.web.launch.fields.mount_fields import MountFields
from backendai.portal.web.launch.fields.network_fields import NetworkFields
from backendai.portal.web.launch.fields.roles_field import placed
from backendai.portal.web.launch.fields.template_fields import TemplateFields
from backendai.portal.web.launch.fields.type_fields import OwnerFields, TypeFields

_FIELD_OF = {"type": "session_type", "resources.cpu": "cpu", "resources.mem": "mem", "resources.shm": "shm"}


class LaunchForm(
    NetworkFields,
    MountFields,
    ThreadFields,
    TemplateFields,
    AllocationFields,
    EnvironmentFields,
    OwnerFields,
    FileFields,
    LabelFields,
    TypeFields,
):
    """All fields of a launch, without their presentation."""

    request_key = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    replaces = forms.ModelChoiceField(
        ComputeSession.objects.none(),
        required=False,
        label=_("Replace the pending session"),
    )
    time_zone = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)

    def __init__(
        self, *args: Any, user: User, actor: User | None = None, slots: Collection[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        actor = actor or user
        cast(Any, self.fields["replaces"]).queryset = ComputeSession.objects.filter(owner=actor)
        self.offer_key_pairs(user, actor)
        self.offer_order(user, actor)
        self.offer_images(user)
        self.offer_places(user, actor, slots)
        self.choose_first_image()
        self.offer_folders(user)

    def take(self, sent: MultiValueDict[str, str], uploads: MultiValueDict[str, Any] | None = None) -> None:
        """Bind the form to this data, so that it validates."""
        if uploads:
            self.take_uploads(sent, uploads.getlist(UPLOAD))
        self.data, self.is_bound = sent, True

    def full_clean(self) -> None:
        """Validate the form in the browser's time zone, for the start time."""
        with timezone.override(self._zone()):
            super().full_clean()

    def spec(self) -> SessionSpec:
        """Return the request as a session spec for the services.

        Raises UserError for values that its template does not allow.
        """
        data = self.cleaned_data
        kind = KINDS[data["session_type"]]
        given = {name: value for name, value in data.items() if value not in (None, "")}
        plain = {name: field for name, field in LAUNCH_FIELDS.items() if field.is_plain and name in given}
        spec = SessionSpec(
            image=data["image"].name,
            resources=self.amounts_asked(),
            preset=self.preset_asked(),
            shm=self.typed("shm"),
            resource_group=data["resource_group"].name,
            project=str(data["project"].pk),
            environ=self.thread_counts() | data["environ"],
            depends_on=[str(each.pk) for each in data["depends_on"]] if kind.has_dependencies else [],
            depends_when=self.condition() if kind.has_dependencies else "",
            agents=[data["agents"]] if data.get("agents") else [],
            files=self.brought_files() if kind.runs_program else (),
            mounts=self.chosen_mounts(),
            start_in=self.chosen_start(),
            **{name: data[name] for name, field in plain.items() if not field.needs or getattr(kind, field.needs)},
        )
        return self.with_template(self.with_unshown(spec), self._actor)

    def how_many(self) -> int:
        """Return the number of requested sessions; 1 for a cluster session."""
        data = self.cleaned_data
        is_cluster = data.get("roles") or (data.get("cluster_size") or 1) > 1
        return 1 if is_cluster else data.get("count") or 1

    def refuse(self, error: UserError) -> None:
        """Add the error to its field, else above the form. Links to the session that prevents the launch."""
        if (error.field or "").startswith("roles."):
            self.add_error("roles", placed(error, self["roles"].value() or []))
        else:
            self.add_error(self._field_of(error), _with_link(error))

    def demand_names(self) -> None:
        """Add an error if a name is taken.

        Only for a form that is about to be launched: after a launch sent twice, its own session has the name.
        """
        data = self.cleaned_data
        if name := data.get("name"):
            try:
                check_names(self.owner_of_amounts, self._actor, name, self.how_many())
            except UserError as error:
                self.refuse(error)

    def wrong_in_order(self) -> list[tuple[str, list[ValidationError]]]:
        """Return the errors by field, in the order of the fields; errors without a field come last."""
        places = {name: place for place, name in enumerate(self.fields)}
        return sorted(self.errors.as_data().items(), key=lambda one: places.get(one[0], len(places)))

    def _field_of(self, error: UserError) -> str | None:
        name = _FIELD_OF.get(error.field or "", error.field or "")
        if name.startswith(("environ.", "matrix.")):
            name = name.partition(".")[0]
        if name == "image" and self.is_image_typed():
            name = "manual_image"
        if name.startswith("resources."):
            name = "slot." + name.removeprefix("resources.")
        if self.cleaned_data.get("preset") and (name in ("cpu", "mem") or name.startswith("slot.")):
            name = "preset"
        return name if name in self.fields else None

    def _zone(self) -> tzinfo:
        try:
            return zoneinfo.ZoneInfo(self.data.get("time_zone") or "")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return timezone.get_default_timezone()


def _with_link(error: UserError) -> str:
    other = error.details.get("session")
    if not other:
        return error.message
    return format_html('{} <a href="{}">{}</a>', error.message, reverse("web:session", args=[other]), _("View session"))
