"""The job ``image.pull``: an agent pulls an image before any session needs it."""

from __future__ import annotations

from pydantic import Field

from backendai.base.core.image_names import pinned
from backendai.base.wire.fields import Order

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
