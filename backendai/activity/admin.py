from django.contrib import admin

from backendai.activity.models import AuditEntry, BackgroundJob


@admin.register(AuditEntry)
class AuditEntryAdmin(admin.ModelAdmin):
    list_display = ["at", "actor", "action", "target_type", "target_id"]
    list_filter = ["action", "target_type"]
    search_fields = ["target_id", "actor__email"]
    list_select_related = ["actor"]

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False

    def has_delete_permission(self, request, obj=None):
        return False


@admin.register(BackgroundJob)
class BackgroundJobAdmin(admin.ModelAdmin):
    list_display = ["created_at", "kind", "subject", "status", "progress", "message"]
    list_filter = ["kind", "status"]
    search_fields = ["subject"]
