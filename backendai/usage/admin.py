from django.contrib import admin

from backendai.activity.read_only import MadeElsewhere
from backendai.usage.models import UsageBucket


@admin.register(UsageBucket)
class UsageBucketAdmin(MadeElsewhere):
    list_display = ["day", "resource_group", "user", "project", "slot", "amount_seconds"]
    list_filter = ["resource_group", "slot", "day"]
    search_fields = ["user__email", "project__name"]
    list_select_related = ["resource_group", "user", "project"]
