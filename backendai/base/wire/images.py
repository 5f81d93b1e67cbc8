"""Jobs about images: an agent pulls one before any session needs it, or saves a session as one."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from backendai.base.core.image_names import pinned
from backendai.base.wire.fields import Digest, Message, Order

PULL = "image.pull"


class RegistryAccess(Order):
    """An account at a registry. Empty ``username``: anonymous access. An agent gets the account just before a pull and
    never stores it."""

    username: str = ""
    password: str = Field(default="", repr=False)


class PullWork(Order):
    """The image to pull, and the account. ``digest``: the exact image (empty: the image that the name refers to
    now)."""

    image: str
    digest: str = ""
    access: RegistryAccess = RegistryAccess()

    @property
    def exact_image(self) -> str:
        """The image reference for the engine: the name, with the digest if there is one."""
        return pinned(self.image, self.digest)


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
