"""Kernels on agents that are missing in the database, for superadmins."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import UnknownKernel
from backendai.domain.compute.services.agents.adopting import adopt_session
from backendai.domain.compute.services.agents.unknown_kernels import remove_unknown
from backendai.portal.api.frame.authentication import superadmin_of
from backendai.portal.api.frame.paging import NewestFirst


class UnknownKernelBody(serializers.ModelSerializer[UnknownKernel]):
    """A kernel that an agent reports and that is not in the database.

    It keeps running until its session is added to the database or it is removed.
    """

    agent = serializers.CharField(source="agent.name")
    session_name = serializers.CharField(help_text="Empty: not known.")
    owner = serializers.CharField(help_text="Empty: not known.")
    hostname = serializers.CharField()
    slots = serializers.DictField()

    class Meta:
        model = UnknownKernel
        fields = [
            "id", "agent", "kernel_id", "generation", "session_id", "session_name", "owner", "hostname", "slots",
            "is_running", "is_kept", "removal_at", "found_at",
        ]  # fmt: skip
        read_only_fields = fields


class AdoptedBody(serializers.Serializer[Any]):
    """The session that was added to the database from an unknown kernel."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    status = serializers.CharField()


class _NewestFirst(NewestFirst):
    ordering = "-found_at"


class UnknownKernelList(ListAPIView[UnknownKernel]):
    """All kernels that agents report and that are not in the database."""

    queryset = UnknownKernel.objects.none()
    serializer_class = UnknownKernelBody
    pagination_class = _NewestFirst

    def get_queryset(self) -> QuerySet[UnknownKernel]:
        """Return all unknown kernels; superadmins only."""
        superadmin_of(self.request)
        return UnknownKernel.objects.select_related("agent")


class UnknownKernelAdopt(GenericAPIView[UnknownKernel]):
    """Adding the session of an unknown kernel to the database."""

    serializer_class = AdoptedBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=None, responses=AdoptedBody)
    def post(self, request: Request, pk: int) -> Response:
        """Add the session of this kernel to the database, with all its kernels; 409 if that is not possible."""
        user = superadmin_of(request)
        row = get_object_or_404(UnknownKernel, pk=pk)
        if row.session_id is None:
            raise Conflict("The session of this kernel is unknown: remove the kernel.", code="session-not-known")
        return Response(AdoptedBody(adopt_session(user, row.session_id, now=timezone.now())).data)


class UnknownKernelRemove(GenericAPIView[UnknownKernel]):
    """Removing an unknown kernel from its agent."""

    serializer_class = UnknownKernelBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=None, responses={202: UnknownKernelBody})
    def post(self, request: Request, pk: int) -> Response:
        """Request that the agent removes the kernel with its home folder and log. 409 if this was already requested."""
        user = superadmin_of(request)
        row = get_object_or_404(UnknownKernel.objects.select_related("agent"), pk=pk)
        remove_unknown(user, row, now=timezone.now())
        row.refresh_from_db()
        return Response(UnknownKernelBody(row).data, status=status.HTTP_202_ACCEPTED)
