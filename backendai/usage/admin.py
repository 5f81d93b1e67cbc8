from django.contrib import admin

from backendai.usage.models import UsageBucket


@admin.register(UsageBucket)
class UsageBucketAdmin(admin.ModelAdmin):
    list_display = ["day", "resource_group", "user", "project", "slot", "amount_seconds"]
    list_filter = ["resource_group", "slot", "day"]
    search_fields = ["user__email", "project__name"]
    list_select_related = ["resource_group", "user", "project"]

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False
