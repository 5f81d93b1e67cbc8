from django import forms
from django.contrib import admin

from backendai.base.core.slots import format_amount
from backendai.domain.accounts.audited_admin import Audited
from backendai.domain.accounts.policies.amounts_field import AmountsField
from backendai.domain.activity.read_only import MadeElsewhere
from backendai.domain.catalog.models import (
    Image,
    ImageAlias,
    ImageOnAgent,
    ImagePull,
    ImageShare,
    Registry,
    ResourcePreset,
)
from backendai.domain.catalog.services import adopt_labels


class ImageForm(forms.ModelForm):
    minimum = AmountsField(label="Smallest size", help_text="What a kernel of it needs at least, as cpu=1, mem=512m.")

    maximum = AmountsField(label="Largest size", help_text="What a kernel of it may have at most; empty: no limit.")

    class Meta:
        model = Image
        fields = "__all__"  # noqa: DJ007  (superadmins alone see this page, and may change all of it)


class PresetForm(forms.ModelForm):
    slots = AmountsField(label="Amounts", help_text="What each kernel gets, as cpu=2, mem=4g, cuda.device=1.")

    class Meta:
        model = ResourcePreset
        fields = "__all__"  # noqa: DJ007  (superadmins alone see this page, and may change all of it)

    def clean_slots(self):
        if not self.cleaned_data["slots"]:
            raise forms.ValidationError("Write at least one slot and its amount, such as cpu=1, mem=1g.")
        return self.cleaned_data["slots"]


@admin.register(Image)
class ImageAdmin(Audited):
    audit_name = "image"
    form = ImageForm
    filter_horizontal = ["domains"]
    autocomplete_fields = ["owner"]
    readonly_fields = ["labels", "created_at"]  # what its maker wrote into it
    list_display = ["name", "title", "reference", "architecture", "is_enabled"]
    list_filter = ["is_enabled", "is_customized", "architecture"]
    search_fields = ["name", "reference"]

    def save_model(self, request, obj, form, change):
        super().save_model(request, obj, form, change)
        adopt_labels(obj)


@admin.register(ImageAlias)
class ImageAliasAdmin(Audited):
    audit_name = "image-alias"
    list_display = ["name", "image"]
    search_fields = ["name", "image__name"]
    list_select_related = ["image"]


@admin.register(ImageOnAgent)
class ImageOnAgentAdmin(MadeElsewhere):
    list_display = ["reference", "agent", "architecture", "size_bytes"]
    list_filter = ["agent"]
    search_fields = ["reference"]
    list_select_related = ["agent"]


@admin.register(ImagePull)
class ImagePullAdmin(MadeElsewhere):
    list_display = ["image", "agent", "status", "progress", "message", "heard_at"]
    list_filter = ["status"]
    search_fields = ["image__name", "agent__name"]
    list_select_related = ["image", "agent"]


@admin.register(ImageShare)
class ImageShareAdmin(MadeElsewhere):
    list_display = ["image", "project", "created_at"]
    search_fields = ["image__name", "image__title", "project__name"]
    list_select_related = ["image", "project"]


@admin.register(ResourcePreset)
class ResourcePresetAdmin(Audited):
    audit_name = "preset"
    form = PresetForm
    list_display = ["name", "resource_group", "amounts_text", "rank"]
    list_filter = ["resource_group"]
    list_select_related = ["resource_group"]

    @admin.display(description="amounts")
    def amounts_text(self, preset):
        return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in sorted(preset.amounts.items()))


@admin.register(Registry)
class RegistryAdmin(Audited):
    audit_name = "registry"
    list_display = ["name", "url", "kind", "is_enabled", "is_global", "scanned_at"]
    list_filter = ["kind", "is_enabled"]
    search_fields = ["name", "url"]
    filter_horizontal = ["domains"]
