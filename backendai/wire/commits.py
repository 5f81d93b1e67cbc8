"""Messages about images that a node makes of running kernels, and about those that it should remove."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from backendai.wire.fields import Digest, Message, Order, Sentence, Share
from backendai.wire.pulls import RegistryAccess

# Labels of an image that was made of a session. What lacks them, or bears another deployment's, is never removed.
OWNER_LABEL = "ai.backend.customized-image.owner"
NAME_LABEL = "ai.backend.customized-image.name"
ID_LABEL = "ai.backend.customized-image.id"
DEPLOYMENT_LABEL = "ai.backend.customized-image.deployment"


class CommitState(StrEnum):
    """What a node says about one image that it makes."""

    COMMITTING = "COMMITTING"
    PUSHING = "PUSHING"
    DONE = "DONE"
    FAILED = "FAILED"


class CommitOrder(Order):
    """Make an image of a kernel; which one, and how, the node asks when it begins."""

    commit_id: UUID


class CommitSpec(Order):
    """Everything that a node needs to make one image. ``most_bytes``: what the kernel may have written at most (0: any
    amount). ``push``: it goes to the registry that the reference names, with this account."""

    commit_id: UUID
    kernel_id: UUID
    generation: int
    reference: str
    labels: dict[str, str] = Field(default_factory=dict)
    most_bytes: int = 0
    timeout: float = 1800.0
    push: bool = False
    access: RegistryAccess = RegistryAccess()


class CommitReport(Message):
    """How far a node is with an image, or what came of it. ``digest``: of the manifest, if it was pushed."""

    commit_id: UUID
    state: CommitState
    message: Sentence = ""
    progress: Share = None
    size_bytes: int = Field(default=0, ge=0, lt=2**63)
    digest: Digest = ""
