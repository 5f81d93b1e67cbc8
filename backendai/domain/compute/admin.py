from django.contrib import admin
from django.urls import reverse

from backendai.domain.activity.read_only import MadeElsewhere, ReadOnly
from backendai.domain.compute.models import (
    Allocation,
    ComputeSession,
    EarlierLog,
    IdleWarning,
    Kernel,
    KernelLog,
    PublicApp,
    SchedulingRecord,
    SessionNotice,
    SessionTraffic,
)

_SHOWN = ("hostname", "status", "status_reason", "agent", "generation", "container_id", "exit_code")


class KernelInline(admin.TabularInline):
    model = Kernel
    fields = _SHOWN
    readonly_fields = _SHOWN
    extra = 0
    can_delete = False

    def has_add_permission(self, request, obj=None):
        return False


@admin.register(ComputeSession)
class ComputeSessionAdmin(ReadOnly):
    list_display = ["name", "owner", "status", "status_reason", "resource_group", "created_at"]
    list_filter = ["status", "session_type", "resource_group"]
    search_fields = ["name", "owner__email", "id"]
    list_select_related = ["owner", "resource_group"]
    inlines = [KernelInline]

    def view_on_site(self, session):
        return reverse("web:session", args=[session.pk])


@admin.register(Kernel)
class KernelAdmin(ReadOnly):
    list_display = ["id", "session", "hostname", "status", "agent", "generation"]
    list_filter = ["status", "agent"]
    search_fields = ["id", "session__name", "container_id"]
    list_select_related = ["session", "agent"]


@admin.register(Allocation)
class AllocationAdmin(ReadOnly):
    list_display = ["agent", "slot", "amount", "kernel"]
    list_filter = ["agent", "slot"]
    list_select_related = ["agent", "kernel"]


@admin.register(SchedulingRecord)
class SchedulingRecordAdmin(ReadOnly):
    list_display = ["session", "phase", "result", "from_status", "to_status", "attempts", "error_code", "updated_at"]
    list_filter = ["phase", "result"]
    search_fields = ["session__name", "session__id", "error_code"]
    list_select_related = ["session"]


@admin.register(EarlierLog)
class EarlierLogAdmin(ReadOnly):
    list_display = ["kernel", "generation", "size", "is_truncated", "saved_at"]
    exclude = ["content"]


@admin.register(KernelLog)
class KernelLogAdmin(ReadOnly):
    list_display = ["kernel", "size", "is_truncated", "saved_at"]
    exclude = ["content"]


@admin.register(SessionNotice)
class SessionNoticeAdmin(MadeElsewhere):
    list_display = ["created_at", "owner", "kind", "session", "seen_at", "cleared_at"]
    list_filter = ["kind"]
    search_fields = ["owner__email", "session__name"]
    list_select_related = ["owner", "session"]


@admin.register(IdleWarning)
class IdleWarningAdmin(ReadOnly):
    list_display = ["session", "checker_name", "kind", "warned_at", "due_at", "extensions", "collected_at"]
    list_filter = ["kind"]
    search_fields = ["session__name", "session__id", "checker_name"]
    list_select_related = ["session"]


@admin.register(SessionTraffic)
class SessionTrafficAdmin(ReadOnly):
    list_display = ["session", "last_at"]
    search_fields = ["session__name", "session__id"]
    list_select_related = ["session"]


@admin.register(PublicApp)
class PublicAppAdmin(MadeElsewhere):
    list_display = ["session", "service", "opened_by", "opened_at", "closes_at"]
    search_fields = ["session__name", "session__id", "service"]
    list_select_related = ["session", "opened_by"]
