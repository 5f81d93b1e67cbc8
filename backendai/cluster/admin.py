from django.contrib import admin

from backendai.accounts.audited_admin import Audited
from backendai.cluster.group_form import GroupForm
from backendai.cluster.models import Agent, JoinToken, PassLease, ResourceGroup


@admin.register(ResourceGroup)
class ResourceGroupAdmin(Audited):
    """Rules are read anew by every pass: what is saved here holds from the next one on."""

    audit_name = "resource-group"
    form = GroupForm
    list_display = ["name", "is_active", "is_public", "sequence", "selection", "backfill"]
    list_filter = ["is_active", "sequence", "selection"]
    filter_horizontal = ["domains", "projects"]
    search_fields = ["name"]
    fieldsets = [
        (None, {"fields": ["name", "description", "is_active"]}),
        ("Open to", {"fields": ["is_public", "domains", "projects", "allowed_session_types"]}),
        (
            "Queue",
            {
                "fields": [
                    "sequence", "strategy_options", "retries_to_skip", "overtaking_limit", "backfill",
                    "usage_half_life",
                ]
            },
        ),
        (
            "Agents",
            {
                "fields": [
                    "selection", "slot_order", "max_kernels_per_agent", "device_allocation", "allow_fragmentation",
                ]
            },
        ),
        ("Limits of waiting", {"fields": ["pending_timeout", "give_up_after", "on_give_up"]}),
        (
            "Phases of a start and an end",
            {
                "fields": [
                    "pull_timeout", "create_timeout", "terminate_timeout", "max_retries", "agent_lost_grace",
                ],
                "description": "Times as days hh:mm:ss, such as 00:30:00.",
            },
        ),
    ]  # fmt: skip


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
