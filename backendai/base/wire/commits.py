"""The jobs ``image.commit`` and ``image.delete``: agents save kernels as images, and delete saved images."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from backendai.base.wire.fields import Digest, Message, Order
from backendai.base.wire.pulls import RegistryAccess

COMMIT, DELETE = "image.commit", "image.delete"
PUSHING = "push"  # the phase in which the image is pushed to its registry

# Labels of an image saved from a session. An image without them, or of another deployment, is never removed.
OWNER_LABEL = "ai.backend.customized-image.owner"
NAME_LABEL = "ai.backend.customized-image.name"
ID_LABEL = "ai.backend.customized-image.id"
DEPLOYMENT_LABEL = "ai.backend.customized-image.deployment"


class CommitSpec(Order):
    """Everything that an agent needs to save a kernel as an image. ``most_bytes``: the most that the kernel may have
    written (0: no limit). ``timeout``: in seconds. ``push``: whether the agent also pushes the image, with the account
    ``access``."""

    kernel_id: UUID
    generation: int
    reference: str
    labels: dict[str, str] = Field(default_factory=dict)
    most_bytes: int = 0
    timeout: float = 1800.0
    push: bool = False
    access: RegistryAccess = RegistryAccess()


class CommitResult(Message):
    """The saved image. ``digest``: the digest of its manifest; empty if the image was not pushed."""

    size_bytes: int = Field(default=0, ge=0, lt=2**63)
    digest: Digest = ""


class DeleteWork(Order):
    """The saved image that the agent deletes."""

    reference: str
