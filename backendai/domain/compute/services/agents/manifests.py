"""Makes and reads the signed manifest of a kernel. With manifests, a restored database can adopt lost sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.core import signing

from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel, SessionMount

_SIGNER = signing.Signer(salt="kernel-manifest")


MOUNTED = ("folder_name", "sub_path", "target", "rights", "is_automatic", "role")


def manifest_of(kernel: Kernel, agent: Agent, mounts: Iterable[SessionMount] = ()) -> str:
    """Return a kernel's signed manifest. Variables are left out, as they may be secret."""
    session = kernel.session
    content = {
        "agent": agent.name,
        "kernel": str(kernel.pk),
        "generation": kernel.generation,
        "rank": kernel.rank,
        "role": kernel.role,
        "index": kernel.index,
        "hostname": kernel.hostname,
        "kernel_slots": kernel.slots,
        "devices": kernel.devices,
        "session": str(session.pk),
        "name": session.name,
        "owner": session.owner.email,
        "project": session.project.name,
        "domain": session.project.domain.name,
        "image": session.image.reference,
        "architecture": session.image.architecture,
        "own": _own_of(kernel),
        **{name: getattr(session, name) for name in COPIED},
        "batch_timeout": _seconds(session.batch_timeout),
        "mounts": [[str(mount.folder_id), *(getattr(mount, name) for name in MOUNTED)] for mount in mounts],
    }
    return _SIGNER.sign_object(content, compress=True)


# Columns that an adoption restores unchanged.
COPIED = (
    "access_key",
    "session_type",
    "slots",
    "total_slots",
    "shm_bytes",
    "cluster_size",
    "cluster_mode",
    "startup_command",
    "preopen_ports",
    "retry_on_agent_loss",
    "may_be_stopped",
    "done_when",
    "image_digest",
    "priority",
    "start_in",
    "labels",
    "note",
)


OWN = ("image_digest", "shm_bytes", "startup_command", "on_failure", "ready")  # columns of a kernel


def read_manifest(text: str) -> dict[str, Any]:
    """Return the content of a manifest that this portal signed; empty for any other text."""
    try:
        return cast(dict[str, Any], _SIGNER.unsign_object(text)) if text else {}
    except (signing.BadSignature, ValueError):
        return {}


def row_of(manifest: dict[str, Any]) -> ComputeSession:
    """Return an unsaved session from the manifest, without owner, project, group and image."""
    seconds = manifest["batch_timeout"]
    return ComputeSession(
        pk=UUID(manifest["session"]),
        name=manifest["name"],
        batch_timeout=None if seconds is None else timedelta(seconds=seconds),
        **{name: manifest[name] for name in COPIED if name in manifest},
    )


def mounts_of(manifest: dict[str, Any], ready: Collection[UUID]) -> list[SessionMount]:
    """Return the mounts in a manifest as ``SessionMount`` objects that are not saved yet. ``ready``: ids of ready
    folders; a mount of another folder gets ``folder_id`` None."""
    return [
        SessionMount(
            session_id=UUID(manifest["session"]),
            folder_id=UUID(folder_id) if UUID(folder_id) in ready else None,
            **dict(zip(MOUNTED, values, strict=False)),
        )
        for folder_id, *values in manifest.get("mounts", ())
    ]


def _own_of(kernel: Kernel) -> dict[str, Any]:
    """Return the kernel's own values and image. Environment variables are left out, as they can be secret."""
    image = kernel.image
    own = {name: getattr(kernel, name) for name in OWN}
    return own | ({"image": [image.reference, image.architecture]} if image else {})


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()
