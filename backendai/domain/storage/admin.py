from django.contrib import admin

from backendai.domain.accounts.audited_admin import Audited
from backendai.domain.activity.read_only import MadeElsewhere, ReadOnly
from backendai.domain.storage.models import Folder, FolderGrant, FolderSize, HostOnAgent, StorageHost


@admin.register(StorageHost)
class StorageHostAdmin(Audited):
    audit_name = "storage-host"
    list_display = ["name", "title", "address", "is_enabled", "is_default", "quota_mode", "answered_at", "fault"]
    list_filter = ["is_enabled", "quota_mode"]
    search_fields = ["name", "title", "address"]
    readonly_fields = [
        "quota_mode",
        "total_bytes",
        "free_bytes",
        "answered_at",
        "listed_at",
        "fault",
        "unknown_folders",
    ]

    def get_readonly_fields(self, request, obj=None):
        return [*self.readonly_fields, "name"] if obj else self.readonly_fields  # agents map the name to their paths


@admin.register(HostOnAgent)
class HostOnAgentAdmin(MadeElsewhere):
    list_display = ["host", "agent", "fault", "can_read_only", "can_sub_path", "free_bytes", "reported_at"]
    list_filter = ["host"]
    search_fields = ["host__name", "agent__name"]
    list_select_related = ["host", "agent"]


@admin.register(Folder)
class FolderAdmin(ReadOnly):
    list_display = ["name", "owner", "host", "status", "limit_bytes", "used_bytes", "created_at"]
    list_filter = ["status", "host", "usage"]
    search_fields = ["name", "user__email", "project__name"]
    list_select_related = ["host", "user", "project__domain"]

    @admin.display(description="owner")
    def owner(self, folder):
        return folder.user or folder.project


@admin.register(FolderGrant)
class FolderGrantAdmin(ReadOnly):
    list_display = ["folder", "user", "rights", "kind", "accepted_at"]
    list_filter = ["kind", "rights"]
    search_fields = ["folder__name", "user__email"]
    list_select_related = ["folder", "user"]


@admin.register(FolderSize)
class FolderSizeAdmin(ReadOnly):
    list_display = ["folder", "day", "used_bytes", "used_files"]
    search_fields = ["folder__name"]
    list_select_related = ["folder"]
    date_hierarchy = "day"
