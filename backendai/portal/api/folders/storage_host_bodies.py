"""Bodies of requests and answers about storage hosts."""

from __future__ import annotations

from rest_framework import serializers

from backendai.domain.storage.models import StorageHost
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import StrictSerializer


class StorageHostBody(Answer[StorageHost]):
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
