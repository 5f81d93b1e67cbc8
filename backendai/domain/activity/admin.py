from django.contrib import admin

from backendai.domain.activity.models import AccessNotice, AuditEntry, BackgroundJob, NoticeChoice
from backendai.domain.activity.read_only import MadeElsewhere, ReadOnly


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    list_display = ["at", "actor", "action", "target_type", "target_id", "address", "request_id"]
    list_filter = ["action", "target_type"]
    search_fields = ["target_id", "actor__email", "request_id"]
    list_select_related = ["actor"]


@admin.register(BackgroundJob)
class BackgroundJobAdmin(MadeElsewhere):
    list_display = ["created_at", "kind", "subject", "owner", "status", "progress", "message"]
    list_filter = ["kind", "status"]
    search_fields = ["subject", "owner__email"]
    list_select_related = ["owner"]


@admin.register(NoticeChoice)
class NoticeChoiceAdmin(MadeElsewhere):
    list_display = ["user", "kind", "card", "bell", "email"]
    search_fields = ["user__email"]
    list_select_related = ["user"]


@admin.register(AccessNotice)
class AccessNoticeAdmin(MadeElsewhere):
    list_display = ["created_at", "owner", "subject_type", "name", "seen_at"]
    list_filter = ["subject_type"]
    search_fields = ["owner__email", "name"]
    list_select_related = ["owner"]
