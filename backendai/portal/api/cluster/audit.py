"""The audit log, for superadmins."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from backendai.domain.activity.models import AuditEntry
from backendai.portal.api.frame.authentication import superadmin_of
from backendai.portal.api.frame.filters import AuditFilter
from backendai.portal.api.frame.paging import NewestFirst


class AuditEntryBody(serializers.ModelSerializer[AuditEntry]):
    """An action of a person or of the platform."""

    actor = serializers.EmailField(
        source="actor.email", default=None, allow_null=True, help_text="null: the platform, or the command line."
    )
    details = serializers.DictField(help_text="What the action changed; its keys depend on the action.")

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "action", "target_type", "target_id", "details", "address", "request_id"]
        read_only_fields = fields


class NewestActions(NewestFirst):
    """Pages as of ``NewestFirst``, by the time of the action."""

    ordering = "-at"


class AuditEntryList(ListAPIView[AuditEntry]):
    """The audit log, the newest entry first; superadmins only."""

    queryset = AuditEntry.objects.select_related("actor")
    serializer_class = AuditEntryBody
    pagination_class = NewestActions
    filterset_class = AuditFilter

    def get_queryset(self) -> QuerySet[AuditEntry]:
        """Return all entries. Raises NotFound for other users."""
        superadmin_of(self.request)
        return super().get_queryset()
