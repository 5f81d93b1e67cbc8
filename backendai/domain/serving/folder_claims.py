"""Endpoints that need a folder, those without a replica too: a start would find it gone."""

from __future__ import annotations

from collections.abc import Iterator

from backendai.base.core.messages import Message
from backendai.domain.compute.services.requests.mounts import annotate_by_name, refers_to_folder
from backendai.domain.serving.models import Endpoint
from backendai.domain.storage.claims import register_claims
from backendai.domain.storage.models import Folder


@register_claims
def endpoints_with(folder: Folder) -> Iterator[Message]:
    """Yield the endpoints whose current or next revision mounts the folder; one query."""
    rows = Endpoint.objects.filter(deleted_at=None).select_related("owner", "current", "next")
    offered = annotate_by_name(rows, folder, owner="owner", project="project")
    for endpoint in offered.order_by("name", "pk"):
        revisions = [one for one in (endpoint.current, endpoint.next) if one is not None]
        names = {str(mount.get("folder", "")) for revision in revisions for mount in revision.mounts}
        if refers_to_folder(folder, names, by_name=endpoint.by_name):
            yield Message("the endpoint {endpoint} of {owner}", endpoint=endpoint.name, owner=endpoint.owner.email)
