"""Chooses the account for requests to a registry, and for pulls and pushes."""

from __future__ import annotations

from backendai.base.core.image_names import USUAL_REGISTRY, parse_image_name
from backendai.base.wire.images import RegistryAccess
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.catalog.registry_client import RegistryClient

_HUB = frozenset({USUAL_REGISTRY, "index.docker.io", "registry-1.docker.io"})


def access_for(image: Image) -> RegistryAccess:
    """Return the account for pulling this image.

    It is that of the image's registry, else that of another one at the same host, else empty. Call it only when an
    agent is about to pull, as it contains the password.
    """
    host = _known_as(parse_image_name(image.reference).registry)
    registries = Registry.objects.exclude(username="").order_by("name")
    there = [registry for registry in registries if _known_as(registry.host) == host]
    there.sort(key=lambda registry: registry.pk != image.registry_id)
    if not there:
        return RegistryAccess()
    return RegistryAccess(username=there[0].username, password=there[0].password)


def push_account_of(registry: Registry) -> RegistryAccess:
    """Return the account that pushes and deletes images.

    Call it only when an agent is about to push, as it contains the password.
    """
    if registry.push_username:
        return RegistryAccess(username=registry.push_username, password=registry.push_password)
    return RegistryAccess(username=registry.username, password=registry.password)


def client_of(registry: Registry, *, deletes: bool = False) -> RegistryClient:
    """Return a client of this registry; with ``deletes`` it uses the account that pushes."""
    account = push_account_of(registry) if deletes else None
    return RegistryClient(
        registry.url,
        username=account.username if account else registry.username,
        password=account.password if account else registry.password,
        verify_tls=registry.verify_tls,
        other_hosts=registry.other_hosts,
    )


def _known_as(host: str) -> str:
    return USUAL_REGISTRY if host.lower() in _HUB else host.lower()
