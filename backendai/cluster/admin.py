from django.contrib import admin

from backendai.cluster.models import Agent, JoinToken, PassLease, ResourceGroup


@admin.register(ResourceGroup)
class ResourceGroupAdmin(admin.ModelAdmin):
    list_display = ["name", "is_active", "is_public", "sequence", "selection"]
    filter_horizontal = ["domains", "projects"]
    search_fields = ["name"]


@admin.register(Agent)
class AgentAdmin(admin.ModelAdmin):
    list_display = ["name", "resource_group", "status", "schedulable", "backend", "last_seen_at"]
    list_filter = ["resource_group", "status", "schedulable"]
    search_fields = ["name"]
    exclude = ["token_digest"]
    readonly_fields = [
        "status", "backend", "architecture", "version", "boot_id", "gateway_url", "capacity", "devices", "notes",
        "images_digest", "last_seen_at", "lost_at", "created_at",
    ]  # fmt: skip

    def has_add_permission(self, request):
        return False  # agents introduce themselves with a join token


@admin.register(JoinToken)
class JoinTokenAdmin(admin.ModelAdmin):
    list_display = ["resource_group", "name_prefix", "is_reusable", "used_at", "expires_at"]
    exclude = ["digest"]

    def has_add_permission(self, request):
        return False  # made by ``manage.py create_join_token``, which can show the text


@admin.register(PassLease)
class PassLeaseAdmin(admin.ModelAdmin):
    list_display = ["name", "owner", "until", "finished_at"]

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False
