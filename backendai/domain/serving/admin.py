from django.contrib import admin

from backendai.domain.activity.read_only import ReadOnly
from backendai.domain.serving.models import (
    AutoScalingRule,
    Endpoint,
    EndpointNotice,
    EndpointToken,
    ProxyReading,
    Replica,
    ReplicaSight,
    Revision,
    ScalingRecord,
    ServingProxy,
)


@admin.register(Endpoint)
class EndpointAdmin(ReadOnly):
    list_display = ["name", "owner", "project", "wish", "minimum", "maximum", "desired", "created_at"]
    list_filter = ["wish", "resource_group"]
    search_fields = ["name", "owner__email"]
    list_select_related = ["owner", "project__domain"]


@admin.register(Revision)
class RevisionAdmin(ReadOnly):
    list_display = ["endpoint", "number", "image", "port", "failed_starts", "retry_at", "created_at"]
    exclude = ["environ"]  # may hold secrets
    search_fields = ["endpoint__name"]
    list_select_related = ["endpoint", "image"]


@admin.register(Replica)
class ReplicaAdmin(ReadOnly):
    list_display = ["endpoint", "number", "state", "reason", "created_at", "ready_at", "ended_at"]
    list_filter = ["state"]
    search_fields = ["endpoint__name"]
    list_select_related = ["endpoint"]


@admin.register(AutoScalingRule)
class AutoScalingRuleAdmin(ReadOnly):
    list_display = ["endpoint", "metric", "up_over", "down_under", "step", "is_active"]
    list_select_related = ["endpoint"]


@admin.register(EndpointToken)
class EndpointTokenAdmin(ReadOnly):
    list_display = ["endpoint", "name", "hint", "per_minute", "expires_at", "revoked_at"]
    exclude = ["digest"]
    search_fields = ["endpoint__name", "name"]
    list_select_related = ["endpoint"]


@admin.register(EndpointNotice)
class EndpointNoticeAdmin(ReadOnly):
    list_display = ["endpoint", "owner", "kind", "created_at", "seen_at"]
    list_filter = ["kind"]
    search_fields = ["endpoint__name", "owner__email"]
    list_select_related = ["endpoint", "owner"]


@admin.register(ServingProxy)
class ServingProxyAdmin(ReadOnly):
    list_display = ["name", "boot", "seen_at", "left_at"]


@admin.register(ProxyReading)
class ProxyReadingAdmin(ReadOnly):
    list_display = ["endpoint", "proxy", "at", "requests", "open", "queued", "held"]
    list_select_related = ["endpoint"]


@admin.register(ReplicaSight)
class ReplicaSightAdmin(ReadOnly):
    list_display = ["replica", "proxy", "at", "is_answering", "open", "message"]
    list_select_related = ["replica"]


@admin.register(ScalingRecord)
class ScalingRecordAdmin(ReadOnly):
    list_display = ["endpoint", "code", "before", "after", "attempts", "updated_at", "message"]
    list_filter = ["code"]
    search_fields = ["endpoint__name"]
    list_select_related = ["endpoint"]
