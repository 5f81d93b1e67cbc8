"""The job ``image.pull``: an image that an agent fetches before anybody starts a session from it."""

from __future__ import annotations

from pydantic import Field

from backendai.core.image_names import pinned
from backendai.wire.fields import Order

PULL = "image.pull"


class RegistryAccess(Order):
    """The account with which a registry lets in; without a name there is none. A node gets it when it is about to pull,
    uses it once, and writes it nowhere."""

    username: str = ""
    password: str = Field(default="", repr=False)


class PullWork(Order):
    """Which image, and with what account. ``digest``: this very one; empty: what the name stands for."""

    image: str
    digest: str = ""
    access: RegistryAccess = RegistryAccess()

    @property
    def exact_image(self) -> str:
        """What the engine is asked for: the name, or the name with the digest."""
        return pinned(self.image, self.digest)
