"""Registries, for superadmins."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.models import Registry
from backendai.domain.catalog.registries import delete_registry, start_scan, write_registry
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.authentication import superadmin_of
from backendai.portal.api.frame.named import domains_named
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView


class RegistryBody(serializers.ModelSerializer[Registry]):
    """A registry, without its passwords."""

    kind = serializers.CharField()
    domains = serializers.SlugRelatedField[Any](many=True, slug_field="name", read_only=True)
    has_password = serializers.SerializerMethodField()
    has_push_password = serializers.SerializerMethodField()

    class Meta:
        model = Registry
        fields = [
            "id", "name", "url", "kind", "projects", "repositories", "other_hosts", "username", "has_password",
            "push_username", "has_push_password", "verify_tls", "enables_new", "takes_pushes", "is_enabled",
            "is_global", "domains", "scanned_at", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_has_password(self, registry: Registry) -> bool:
        """Return whether the registry has a password."""
        return bool(registry.sealed_password)

    def get_has_push_password(self, registry: Registry) -> bool:
        """Return whether the registry has a password for pushing."""
        return bool(registry.sealed_push_password)


class RegistryRequest(StrictSerializer):
    """A registry. In a change, omitted fields stay."""

    name = serializers.CharField(max_length=50)
    url = serializers.CharField(max_length=255)
    kind = serializers.CharField(max_length=16, required=False, help_text="docker or harbor.")
    projects = serializers.CharField(max_length=1024, required=False, allow_blank=True)
    repositories = serializers.CharField(max_length=65536, required=False, allow_blank=True)
    other_hosts = serializers.CharField(max_length=1024, required=False, allow_blank=True)
    username = serializers.CharField(max_length=128, required=False, allow_blank=True)
    password = serializers.CharField(
        max_length=1024, required=False, allow_blank=True, trim_whitespace=False, help_text="Never shown again."
    )
    push_username = serializers.CharField(
        max_length=128,
        required=False,
        allow_blank=True,
        help_text="The account that pushes and deletes; empty: username.",
    )
    push_password = serializers.CharField(
        max_length=1024, required=False, allow_blank=True, trim_whitespace=False, help_text="Never shown again."
    )
    verify_tls = serializers.BooleanField(required=False)
    enables_new = serializers.BooleanField(required=False)
    takes_pushes = serializers.BooleanField(required=False, help_text="Push customized images here.")
    is_enabled = serializers.BooleanField(required=False)
    is_global = serializers.BooleanField(required=False)
    domains = serializers.ListField(child=serializers.CharField(max_length=128), required=False)


class RegistryView(ResourceView[Registry]):
    """The base of the views of registries, which superadmins alone see."""

    queryset = Registry.objects.prefetch_related("domains")
    serializer_class: type[Any] = RegistryBody
    token_scopes = (Scope.ADMIN,)

    def visible(self, rows: Any) -> QuerySet[Registry]:
        found: QuerySet[Registry] = rows if self.user.is_superadmin else rows.none()
        return found


class RegistryList(RegistryView, ListAPIView[Registry]):
    """All registries; empty for others than superadmins."""

    pagination_class = ByName

    @extend_schema(request=RegistryRequest, responses={201: RegistryBody})
    def post(self, request: Request) -> Response:
        """Create a registry."""
        actor = superadmin_of(request)
        values = _values(values_of(RegistryRequest, request.data))
        return self.answer(write_registry(actor.pk, Registry(), values), status.HTTP_201_CREATED)


class RegistryDetail(RegistryView, RetrieveAPIView[Registry]):
    """One registry."""

    @extend_schema(request=RegistryRequest, responses=RegistryBody)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields."""
        registry, values = self.get_object(), _values(values_of(RegistryRequest, request.data, partial=True))
        return self.answer(write_registry(self.user.pk, registry, values))

    def delete(self, request: Request, pk: int) -> Response:
        """Delete the registry; its images stay."""
        delete_registry(self.user.pk, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class RegistryScan(RegistryView):
    """Scanning one registry."""

    serializer_class = JobBody

    @extend_schema(request=None, responses={202: JobBody})
    def post(self, request: Request, pk: int) -> Response:
        """Start the scan, and return the background job; 409 while another one runs."""
        job = start_scan(self.user, self.get_object(), now=timezone.now())
        return Response(JobBody(job).data, status=status.HTTP_202_ACCEPTED)


def _values(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"domains": domains_named(data["domains"])} if "domains" in data else data
