"""Messages about images that a node should fetch before anybody starts a session from them."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from backendai.core.image_names import pinned
from backendai.wire.fields import Message, Order, Sentence, Share


class PullState(StrEnum):
    """What a node says about one pull."""

    PULLING = "PULLING"
    DONE = "DONE"
    FAILED = "FAILED"


class RegistryAccess(Order):
    """The account with which a registry lets in; without a name there is none. A node gets it when it is about to pull,
    uses it once, and writes it nowhere."""

    username: str = ""
    password: str = Field(default="", repr=False)


class PullOrder(Order):
    """Fetch an image; which one, and with what account, the node asks when it begins."""

    pull_id: UUID


class PullSpec(Order):
    """Everything that a node needs to fetch one image. ``digest``: this very one; empty: what the name stands for."""

    pull_id: UUID
    image: str
    digest: str = ""
    timeout: float = 1800.0
    access: RegistryAccess = RegistryAccess()

    @property
    def exact_image(self) -> str:
        """What the engine is asked for: the name, or the name with the digest."""
        return pinned(self.image, self.digest)


class PullReport(Message):
    """How far a node is with a pull, or what came of it."""

    pull_id: UUID
    state: PullState
    message: Sentence = ""
    progress: Share = None
