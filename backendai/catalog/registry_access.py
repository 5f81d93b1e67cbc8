"""With what account a registry is asked, and an image fetched from it."""

from __future__ import annotations

from backendai.catalog.models import Image, Registry
from backendai.catalog.registry_client import RegistryClient
from backendai.core.image_names import USUAL_REGISTRY, parse_image_name
from backendai.wire.pulls import RegistryAccess

_HUB = frozenset({USUAL_REGISTRY, "index.docker.io", "registry-1.docker.io"})


def access_for(image: Image) -> RegistryAccess:
    """Return the account of the registry that the image's reference names: its own registry's, else that of another one
    at the same host. Without one the registry is asked as nobody. Ask for it only when a node is about to pull."""
    host = _known_as(parse_image_name(image.reference).registry)
    registries = Registry.objects.exclude(username="").order_by("name")
    there = [registry for registry in registries if _known_as(registry.host) == host]
    there.sort(key=lambda registry: registry.pk != image.registry_id)
    if not there:
        return RegistryAccess()
    return RegistryAccess(username=there[0].username, password=there[0].password)


def push_account_of(registry: Registry) -> RegistryAccess:
    """Return the account that pushes and deletes. Ask for it only when a node is about to push."""
    if registry.push_username:
        return RegistryAccess(username=registry.push_username, password=registry.push_password)
    return RegistryAccess(username=registry.username, password=registry.password)


def client_of(registry: Registry, *, deletes: bool = False) -> RegistryClient:
    """Return the client of this registry, with the account that may do what is needed."""
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
