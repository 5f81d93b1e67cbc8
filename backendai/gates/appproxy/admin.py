from django.contrib import admin

from backendai.domain.activity.read_only import MadeElsewhere
from backendai.gates.appproxy.models import AppGrant, FilesGrant


@admin.register(AppGrant)
class AppGrantAdmin(MadeElsewhere):
    """The administration pages of the grants of apps. Deleting a grant ends the access within seconds."""

    list_display = ["service", "user", "kernel", "created_at", "expires_at"]
    list_filter = ["service"]
    list_select_related = ["user", "kernel"]
    search_fields = ["user__email", "host"]
    fields = ["service", "port", "host", "user", "kernel", "generation", "created_at", "expires_at"]


@admin.register(FilesGrant)
class FilesGrantAdmin(MadeElsewhere):
    """The administration pages of the grants of folders. Deleting a grant ends the access within seconds."""

    list_display = ["folder", "user", "created_at", "expires_at"]
    list_select_related = ["user", "folder"]
    search_fields = ["user__email", "host"]
    fields = ["folder", "host", "portal", "user", "created_at", "expires_at"]
