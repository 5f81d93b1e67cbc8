from django.contrib import admin

from backendai.catalog.models import Image, ImageOnAgent, ResourcePreset


@admin.register(Image)
class ImageAdmin(admin.ModelAdmin):
    list_display = ["name", "title", "reference", "architecture", "is_enabled"]
    list_filter = ["is_enabled"]
    search_fields = ["name", "reference"]


@admin.register(ImageOnAgent)
class ImageOnAgentAdmin(admin.ModelAdmin):
    list_display = ["reference", "agent", "architecture", "size_bytes"]
    list_filter = ["agent"]
    search_fields = ["reference"]
    list_select_related = ["agent"]

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False


@admin.register(ResourcePreset)
class ResourcePresetAdmin(admin.ModelAdmin):
    list_display = ["name", "resource_group", "slots", "rank"]
    list_filter = ["resource_group"]
