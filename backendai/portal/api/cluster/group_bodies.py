"""Bodies of requests and answers about the settings of a resource group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from backendai.domain.accounts.models import Domain, KeyPair, Project
from backendai.domain.cluster.models.groups import ResourceGroup


class GroupSettingsBody(serializers.ModelSerializer[ResourceGroup]):
    """The settings of a group.

    Times are in seconds or as ``[days] hh:mm:ss``. ``session_defaults``: ``priority``, ``batch_timeout`` (seconds),
    ``shm``, ``environ``.
    """

    domains = serializers.SlugRelatedField(
        many=True, slug_field="name", queryset=Domain.objects.all(), required=False, help_text="By name."
    )
    projects = serializers.PrimaryKeyRelatedField(
        many=True, queryset=Project.objects.all(), required=False, help_text="By ID."
    )
    key_pairs = serializers.PrimaryKeyRelatedField(
        many=True, queryset=KeyPair.objects.all(), required=False, help_text="By access key."
    )

    class Meta:
        model = ResourceGroup
        exclude: ClassVar[list[str]] = ["id", "created_at", "next_agent", "tries_counted_at"]
        extra_kwargs: ClassVar[dict[str, Any]] = {"is_default": {"validators": []}, "name": {"validators": []}}

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values. Raises ValidationError that names unknown fields."""
        if isinstance(data, Mapping):
            known = sorted(self.fields)
            text = f"Unknown field. Known fields: {', '.join(known)}."
            if unknown := {name: [ErrorDetail(text, "unknown-field")] for name in data if name not in known}:
                raise ValidationError(unknown)
        return super().to_internal_value(data)
