"""Storage hosts: everybody sees them, superadmins change them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.storage.models import StorageHost
from backendai.domain.storage.services import delete_host, write_host
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import StrictSerializer
from backendai.portal.api.frame.permissions import SuperadminsWrite


class StorageHostBody(serializers.ModelSerializer[StorageHost]):
    """A storage host for new folders."""

    quota_mode = serializers.CharField(
        help_text="enforced: the file system enforces limits; measured: only uploads are stopped."
    )
    is_reachable = serializers.SerializerMethodField()

    class Meta:
        model = StorageHost
        fields = [
            "id", "name", "title", "is_enabled", "is_default", "quota_mode", "free_bytes", "is_reachable",
            "fault_since",
        ]  # fmt: skip
        read_only_fields = fields

    def get_is_reachable(self, host: StorageHost) -> bool:
        """Return whether the storage host works."""
        return not host.fault


class WholeHostBody(StorageHostBody):
    """A storage host as superadmins see it."""

    class Meta(StorageHostBody.Meta):
        fields = [
            *StorageHostBody.Meta.fields, "address", "public_address", "total_bytes", "fault", "answered_at",
            "unknown_folders", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class HostChange(StrictSerializer):
    """Changes of a storage host, except its name."""

    title = serializers.CharField(max_length=128, required=False, allow_blank=True)
    address = serializers.CharField(max_length=255, required=False)
    public_address = serializers.CharField(max_length=255, required=False, allow_blank=True)
    is_enabled = serializers.BooleanField(required=False)
    is_default = serializers.BooleanField(required=False)


class HostRequest(HostChange):
    """A new storage host."""

    name = serializers.CharField(max_length=32)
    address = serializers.CharField(max_length=255)


class StorageHostList(ListAPIView[StorageHost]):
    """The storage hosts; superadmins see more fields, and disabled hosts."""

    queryset = StorageHost.objects.none()
    serializer_class = WholeHostBody
    pagination_class = ByName
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[StorageHost]:
        """Return the visible hosts."""
        return StorageHost.objects.visible_to(user_of(self.request))

    def get_serializer_class(self) -> Any:
        """Return the serializer with the fields that the user may see."""
        return _body_of(self.request)

    @extend_schema(request=HostRequest, responses={201: WholeHostBody})
    def post(self, request: Request) -> Response:
        """Add a storage host whose file server is already running."""
        body = HostRequest(data=request.data)
        body.is_valid(raise_exception=True)
        made = write_host(user_of(request).pk, StorageHost(), body.validated_data)
        return Response(WholeHostBody(made).data, status=status.HTTP_201_CREATED)


class StorageHostDetail(GenericAPIView[StorageHost]):
    """One storage host."""

    serializer_class = WholeHostBody
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)
    filter_backends: list[Any] = []

    def get(self, request: Request, storage_host_id: UUID) -> Response:
        """Return the storage host."""
        return Response(_body_of(request)(_host(request, storage_host_id)).data)

    @extend_schema(request=HostChange, responses=WholeHostBody)
    def patch(self, request: Request, storage_host_id: UUID) -> Response:
        """Change the given fields."""
        host = _host(request, storage_host_id)
        body = HostChange(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(WholeHostBody(write_host(user_of(request).pk, host, body.validated_data)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, storage_host_id: UUID) -> Response:
        """Remove the storage host from the portal; its files stay. 409 ``storage-host-in-use`` while it has folders."""
        delete_host(user_of(request).pk, _host(request, storage_host_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _host(request: Request, pk: UUID) -> StorageHost:
    found: StorageHost = get_object_or_404(StorageHost.objects.visible_to(user_of(request)), pk=pk)
    return found


def _body_of(request: Request) -> Any:
    is_steering = getattr(request.user, "is_superadmin", False)
    return WholeHostBody if is_steering else StorageHostBody
