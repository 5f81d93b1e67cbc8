"""Pages of images."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.db.models import Count, F, Max, Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST

from backendai.base.core.image_names import is_exact_digest
from backendai.base.core.slots import format_size
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.policies.amounts_field import AmountsField
from backendai.domain.catalog.images import adopt_from_agents, change_image, create_image, delete_image
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.images.own_images import delete_own_image
from backendai.domain.compute.status import Status
from backendai.portal.web.admin.access import panel_page
from backendai.portal.web.admin.catalog.one_image import ImageAgentsPage, ImageBuildPage, builds_shown
from backendai.portal.web.admin.editing import DeleteUnlessUsed
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import NumberColumn, PanelFilter, PanelTable, YesNoColumn
from backendai.portal.web.admin.objects import ObjectPages
from backendai.portal.web.frame.requests import PageRequest


class ImageTable(PanelTable):
    """A table with one row for each image."""

    name = tables.LinkColumn("manage:image", args=[tables.A("pk")])
    title = tables.Column(_l("Title"))
    is_enabled = YesNoColumn(_l("Enabled"))
    reference = tables.Column(_l("Reference"))
    architecture = tables.Column(_l("Architecture"))
    size = NumberColumn(_l("Size"))
    agents = NumberColumn(_l("On agents"))
    owner = tables.Column(_l("Owner"), accessor="owner__email", default="")

    class Meta(PanelTable.Meta):
        model = Image
        order_by = "name"

    def render_size(self, value: int) -> str:
        return format_size(value)


class ImageFilter(PanelFilter):
    """Filters images by words, state, and whether agents have them."""

    search_fields = ("name", "title", "reference", "aliases__name")
    search_hint = _l("Name, alias or reference")

    architecture = django_filters.AllValuesFilter(
        field_name="architecture", label=_l("Architecture"), empty_label=_l("any")
    )
    on_agents = django_filters.ChoiceFilter(
        label=_l("On agents"),
        method="by_agents",
        empty_label=_l("any"),
        choices=[("some", _l("on some")), ("none", _l("on none"))],
    )

    class Meta:
        model = Image
        fields: ClassVar[list[str]] = ["is_enabled", "is_customized"]

    def search(self, rows: QuerySet[Any], name: str, text: str) -> QuerySet[Any]:
        """Return the images with these words, each once even if several of its names match."""
        found = super().search(Image.objects.all(), name, text)
        return rows.filter(pk__in=found.values("pk"))

    def by_agents(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the images that some agent has, or that no agent has."""
        return rows.filter(agents__gt=0) if value == "some" else rows.filter(agents=0)


class ImageForm(EditForm):
    """The form of an image for administrators."""

    groups = (
        (_l("Source"), ("reference", "digest", "architecture")),
        (_l("Aliases"), ("alias_names",)),
        (_l("Resources per kernel"), ("minimum", "maximum")),
        (_l("What it serves"), ("services",)),
        (_l("Who may use it"), ("domains",)),
    )

    shown_at: ClassVar[dict[str, str]] = {"aliases": "alias_names"}

    alias_names = forms.CharField(
        required=False,
        label=_l("Aliases"),
        help_text=_l("Separated by spaces. Must not match another image's name or alias."),
    )
    minimum = AmountsField(label=_l("Minimum"), help_text=_l("Minimum per kernel, such as cpu=1, mem=512m."))
    maximum = AmountsField(label=_l("Maximum"), help_text=_l("Maximum per kernel. Not listed: no limit."))

    class Meta:
        model = Image
        fields: ClassVar[list[str]] = [
            "name", "title", "description", "is_enabled", "reference", "digest", "architecture", "minimum", "maximum",
            "services", "domains",
        ]  # fmt: skip
        labels: ClassVar[dict[str, Any]] = {"is_enabled": _l("Enabled")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk and not self.instance._state.adding:
            self.initial["alias_names"] = " ".join(self.instance.aliases.values_list("name", flat=True))

    def clean_digest(self) -> str:
        """Return the digest. Raises ValidationError for a malformed one, which would fail at every start."""
        said: str = self.cleaned_data["digest"].strip()
        if said and "digest" in self.changed_data and not is_exact_digest(said):
            raise forms.ValidationError(_("Write sha256: and 64 digits from 0 to 9 and a to f, or leave it empty."))
        return said

    def values(self) -> dict[str, Any]:
        """Return the form's values for the service."""
        data = super().values()
        return data | {"aliases": self.cleaned_data["alias_names"].split(), "domains": list(data["domains"])}


def _uses_of(image: Image) -> list[str]:
    """Return notes about the waiting and running sessions of a disabled image."""
    live = ComputeSession.objects.live().using(image)
    waiting = live.filter(status=Status.PENDING).count()
    running = live.count() - waiting
    notes = []
    if running:
        text = ngettext(
            "%(number)s session uses it and continues.", "%(number)s sessions use it and continue.", running
        )
        notes.append(text % {"number": running})
    if waiting:
        text = ngettext(
            "%(number)s session waits for it and will still start.",
            "%(number)s sessions wait for it and will still start.",
            waiting,
        )
        notes.append(text % {"number": waiting})
    return notes


@require_POST
@panel_page()
def images_from_agents(request: PageRequest) -> HttpResponse:
    """Add disabled images to the catalogue for those that agents have and the catalogue lacks."""
    found = adopt_from_agents(request.user.pk)
    names = ", ".join(image.name for image in found[:5]) + (", …" if len(found) > 5 else "")
    if found:
        messages.success(request, _("New in the catalogue, and disabled: %(names)s.") % {"names": names})
    else:
        messages.success(request, _("No agent has an image of this platform that is missing from the catalogue."))
    return redirect("manage:images")


class Images(ObjectPages):
    """Images, for superadmins. A new one needs its reference."""

    section = "images"
    name = "image"
    key = "uuid"
    model = Image
    title = _l("Images")
    icon = "package"
    guide = "images"
    lead = _l("what sessions start from")
    table_class = ImageTable
    filterset_class = ImageFilter
    list_template = "web/panel/images.html"
    form_class = ImageForm
    form_template = "web/panel/image.html"
    new_label = _l("New image")
    save_label = _l("Save image")
    saved_text = _l("Image %(saved)s is saved.")
    delete_label = _l("Remove image")
    delete_page = DeleteUnlessUsed
    delete_word = "forget"
    can_deactivate = False
    question_text = _l("Remove %(object)s from the catalogue?")
    instead = _l("An image that sessions were started from cannot be removed: disable it instead.")
    deleted_text = _l("%(name)s is removed from the catalogue.")
    more = (
        path("images/from-agents/", images_from_agents, name="images-from-agents"),
        path("images/<uuid:pk>/agents/", ImageAgentsPage.as_view(), name="image-agents"),
        path("images/<uuid:pk>/build/", ImageBuildPage.as_view(), name="image-build"),
    )

    def rows(self) -> QuerySet[Image]:
        """Return the images with the number of agents that have them, and their size there."""
        there = ImageOnAgent.objects.filter(
            Q(reference=OuterRef("reference")) | Q(digest=OuterRef("digest")) & ~Q(digest="")
        ).order_by()
        counted = there.values(one=F("pk") * 0).annotate(number=Count("agent", distinct=True)).values("number")
        largest = there.values(one=F("pk") * 0).annotate(most=Max("size_bytes")).values("most")
        return (
            Image.objects.kept()
            .select_related("owner")
            .annotate(agents=Coalesce(Subquery(counted), 0), size=Coalesce(F("size_bytes"), Subquery(largest)))
        )

    def list_context(self) -> dict[str, Any]:
        """Return the builds of enabled images that no agent has."""
        made_here = Image.objects.kept().filter(is_built_here=True, is_enabled=True)
        return {"builds": [build for build in builds_shown(made_here) if not build["agents"]]}

    def form_context(self) -> dict[str, Any]:
        """Return the build of an image that is built here."""
        image = self.find()
        return {"builds": builds_shown([image] if image else [])}

    def save(self, form: EditForm) -> Any:
        """Save the image by the services, with their checks and audit entries."""
        image, values = self.find(), form.values()
        return create_image(self.viewer.pk, values) if image is None else change_image(self.viewer.pk, image, values)

    def notes(self, saved: Any) -> list[str]:
        """Return warnings about sessions that use a disabled image."""
        return [] if saved.is_enabled else _uses_of(saved)

    def counted(self) -> dict[type[Model], int]:
        """Return how many sessions were started from the image.

        None count for an image saved from a session, as they do not prevent its deletion.
        """
        number = 0 if self.object.is_customized else ComputeSession.objects.filter(image=self.object).count()
        return {ComputeSession: number} if number else {}

    def consequences(self) -> list[str]:
        if self.object.is_customized:
            return [
                _("It was created from a session: its owner can no longer start sessions from it."),
                _("Its agents remove it as soon as all sessions that use it have ended."),
            ]
        return [_("No session can be started from it any more; agents and registries keep it.")]

    def delete(self) -> None:
        if self.object.is_customized:
            delete_own_image(self.viewer, self.object, now=timezone.now())
        else:
            delete_image(self.viewer.pk, self.object)
