from django.contrib import admin

from backendai.activity.read_only import MadeElsewhere
from backendai.appproxy.models import AppGrant


@admin.register(AppGrant)
class AppGrantAdmin(MadeElsewhere):
    """Deleting one ends the access within seconds."""

    list_display = ["service", "user", "kernel", "created_at", "expires_at"]
    list_filter = ["service"]
    list_select_related = ["user", "kernel"]
    search_fields = ["user__email", "host"]
    fields = ["service", "port", "host", "user", "kernel", "generation", "created_at", "expires_at"]
