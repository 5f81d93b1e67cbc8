"""Endpoints that need a folder, those without a replica too: a start would find it gone."""

from __future__ import annotations

from collections.abc import Iterator

from backendai.compute.services.mounts import is_meant
from backendai.core.messages import Message
from backendai.serving.models import Endpoint
from backendai.storage.claims import register_claims
from backendai.storage.models import Folder


@register_claims
def endpoints_with(folder: Folder) -> Iterator[Message]:
    """Yield the endpoints whose current or next revision mounts the folder."""
    rows = Endpoint.objects.filter(deleted_at=None).select_related("owner", "project", "current", "next")
    for endpoint in rows.order_by("name", "pk"):
        revisions = [one for one in (endpoint.current, endpoint.next) if one is not None]
        names = {str(mount.get("folder", "")) for revision in revisions for mount in revision.mounts}
        if any(is_meant(folder, name, endpoint.owner, endpoint.project) for name in names):
            yield Message("the endpoint {endpoint} of {owner}", endpoint=endpoint.name, owner=endpoint.owner.email)
