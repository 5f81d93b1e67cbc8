"""Storage hosts: everybody sees them, superadmins change them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.storage.models import StorageHost
from backendai.domain.storage.services import delete_host, write_host
from backendai.portal.api.frame.authentication import SuperadminsWrite
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView


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
    address = serializers.CharField(max_length=255)
    public_address = serializers.CharField(max_length=255, required=False, allow_blank=True)
    is_enabled = serializers.BooleanField(required=False)
    is_default = serializers.BooleanField(required=False)


class HostRequest(HostChange):
    """A new storage host."""

    name = serializers.CharField(max_length=32)


class StorageHostView(ResourceView[StorageHost]):
    """The base of the views of storage hosts."""

    queryset = StorageHost.objects.all()
    serializer_class = WholeHostBody
    lookup_url_kwarg = "storage_host_id"
    permission_classes = [SuperadminsWrite]
    token_scopes = (Scope.ADMIN,)

    def get_serializer_class(self) -> Any:
        """Return the serializer with the fields that the user may see."""
        return WholeHostBody if getattr(self.request.user, "is_superadmin", False) else StorageHostBody


class StorageHostList(StorageHostView, ListAPIView[StorageHost]):
    """The storage hosts; superadmins see more fields, and disabled hosts."""

    pagination_class = ByName

    @extend_schema(request=HostRequest, responses={201: WholeHostBody})
    def post(self, request: Request) -> Response:
        """Add a storage host whose file server is already running."""
        values = values_of(HostRequest, request.data)
        return self.answer(write_host(self.user.pk, StorageHost(), values), status.HTTP_201_CREATED)


class StorageHostDetail(StorageHostView):
    """One storage host."""

    @extend_schema(responses=WholeHostBody)
    def get(self, request: Request, storage_host_id: UUID) -> Response:
        """Return the storage host."""
        return self.answer(self.get_object())

    @extend_schema(request=HostChange, responses=WholeHostBody)
    def patch(self, request: Request, storage_host_id: UUID) -> Response:
        """Change the given fields."""
        host, values = self.get_object(), values_of(HostChange, request.data, partial=True)
        return self.answer(write_host(self.user.pk, host, values))

    def delete(self, request: Request, storage_host_id: UUID) -> Response:
        """Remove the storage host from the portal; its files stay. 409 ``storage-host-in-use`` while it has folders."""
        delete_host(self.user.pk, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)
