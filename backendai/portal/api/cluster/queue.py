"""The pending sessions of a resource group, for administrators."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.portal.api.frame.fields import DecimalAmounts, MessageValues
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.views import ResourceView

_LAST = 2**31 - 1


class QueuedBody(serializers.ModelSerializer[ComputeSession]):
    """A pending session, and why it waits."""

    type = serializers.CharField(source="session_type")
    owner = serializers.EmailField(source="owner.email")
    resources = DecimalAmounts(source="total", read_only=True, help_text="Amounts of all its kernels together.")
    status_message = serializers.CharField(source="reason_text")
    status_values = MessageValues("reason_text")
    never_starts = serializers.SerializerMethodField(help_text="true: no agent or policy could ever allow it.")

    class Meta:
        model = ComputeSession
        fields = [
            "id", "name", "type", "owner", "queue_position", "priority", "resources", "cluster_size", "status_reason",
            "status_message", "status_values", "never_starts", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_never_starts(self, session: ComputeSession) -> bool:
        """Return whether the last pass found that the session cannot start."""
        return bool(session.status_data.get("never"))


class InOrder(NewestFirst):
    """Pages as of ``NewestFirst``, in the order of the queue; sessions that no pass has considered come last."""

    ordering = ("place", "-priority", "created_at")


class GroupQueue(ResourceView[ComputeSession], ListAPIView[ComputeSession]):
    """The pending sessions of a group that the administrator sees, in the order in which they are considered."""

    queryset = ComputeSession.objects.select_related("owner").defer("environ", "spec")
    serializer_class = QueuedBody
    pagination_class = InOrder

    def visible(self, rows: Any) -> QuerySet[ComputeSession]:
        """Return the rows. Raises NotFound for users who administer nothing."""
        if self.user.role == User.Role.USER:
            raise NotFound("Not found, or you have no access.")
        group = get_object_or_404(ResourceGroup.objects.visible_to(self.user), name=self.kwargs["group"])
        pending: QuerySet[ComputeSession] = rows.visible_to(self.user).pending().filter(resource_group=group)
        return pending.annotate(place=Coalesce("queue_position", _LAST))
