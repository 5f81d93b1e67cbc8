"""Registries, for superadmins."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import NotFound, UserError
from backendai.domain.accounts.models import Domain
from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.models import Registry
from backendai.domain.catalog.registries import delete_registry, start_scan, write_registry
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import StrictSerializer


class RegistryBody(serializers.ModelSerializer[Registry]):
    """A registry, without its passwords."""

    kind = serializers.CharField()
    domains = serializers.SerializerMethodField()
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

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_domains(self, registry: Registry) -> list[str]:
        """Return the names of the domains that may use the registry's images; empty if all may."""
        return [domain.name for domain in registry.domains.all()]

    def get_has_password(self, registry: Registry) -> bool:
        """Return whether the registry has a password."""
        return bool(registry.sealed_password)

    def get_has_push_password(self, registry: Registry) -> bool:
        """Return whether the registry has a password for pushing."""
        return bool(registry.sealed_push_password)


class RegistryChange(StrictSerializer):
    """Changes of a registry."""

    name = serializers.CharField(max_length=50, required=False)
    url = serializers.CharField(max_length=255, required=False)
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


class RegistryRequest(RegistryChange):
    """A new registry."""

    name = serializers.CharField(max_length=50)
    url = serializers.CharField(max_length=255)


class RegistryList(ListAPIView[Registry]):
    """All registries; empty for others than superadmins."""

    queryset = Registry.objects.none()
    serializer_class = RegistryBody
    pagination_class = ByName
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Registry]:
        """Return the visible registries."""
        return _visible(self.request)

    @extend_schema(request=RegistryRequest, responses={201: RegistryBody})
    def post(self, request: Request) -> Response:
        """Create a registry."""
        if not user_of(request).is_superadmin:
            raise NotFound("Not found, or you have no access.")
        body = RegistryRequest(data=request.data)
        body.is_valid(raise_exception=True)
        made = write_registry(user_of(request).pk, Registry(), _values(body.validated_data))
        return Response(RegistryBody(made).data, status=status.HTTP_201_CREATED)


class RegistryDetail(RetrieveAPIView[Registry]):
    """One registry."""

    queryset = Registry.objects.none()
    serializer_class = RegistryBody
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Registry]:
        """Return the visible registries."""
        return _visible(self.request)

    @extend_schema(request=RegistryChange, responses=RegistryBody)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields."""
        registry = get_object_or_404(self.get_queryset(), pk=pk)
        body = RegistryChange(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(RegistryBody(write_registry(user_of(request).pk, registry, _values(body.validated_data))).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete the registry; its images stay."""
        delete_registry(user_of(request).pk, get_object_or_404(self.get_queryset(), pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RegistryScan(GenericAPIView[Any]):
    """Scanning one registry."""

    serializer_class = JobBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=None, responses={202: JobBody})
    def post(self, request: Request, pk: int) -> Response:
        """Start the scan, and return the background job; 409 while another one runs."""
        job = start_scan(user_of(request), get_object_or_404(_visible(request), pk=pk), now=timezone.now())
        return Response(JobBody(job).data, status=status.HTTP_202_ACCEPTED)


def _visible(request: Request) -> QuerySet[Registry]:
    rows = Registry.objects.prefetch_related("domains")
    return rows if user_of(request).is_superadmin else rows.none()


def _values(data: dict[str, Any]) -> dict[str, Any]:
    if "domains" not in data:
        return data
    found = {domain.name: domain for domain in Domain.objects.filter(name__in=data["domains"])}
    unknown = sorted(set(data["domains"]) - found.keys())
    if unknown:
        raise UserError("Domain {unknown} not found.", unknown=repr(unknown[0]), field="domains", code="unknown-domain")
    return data | {"domains": list(found.values())}
