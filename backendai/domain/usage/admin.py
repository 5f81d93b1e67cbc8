from django.contrib import admin

from backendai.domain.activity.read_only import MadeElsewhere
from backendai.domain.usage.models import UsageBucket, UsageSample


@admin.register(UsageBucket)
class UsageBucketAdmin(MadeElsewhere):
    list_display = ["day", "resource_group", "user", "project", "slot", "amount_seconds"]
    list_filter = ["resource_group", "slot", "day"]
    search_fields = ["user__email", "project__name"]
    list_select_related = ["resource_group", "user", "project"]


@admin.register(UsageSample)
class UsageSampleAdmin(MadeElsewhere):
    list_display = ["at", "seconds", "kernel", "cpu", "mem_bytes", "devices"]
    list_select_related = ["kernel"]
    search_fields = ["=kernel__id", "=kernel__session__id"]
    show_full_result_count = False
