"""The kinds of fields that messages are made of.

Nodes have little trust: what they say is cut to what the database and the pages can hold, here and for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _cut(length: int) -> Callable[[str], str]:
    return lambda text: text.replace("\0", "")[:length]


def _share(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else min(max(value, 0.0), 1.0)


def _percent(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(min(max(value, 0.0), 100.0), 1)


Word = Annotated[str, AfterValidator(_cut(32))]
Name = Annotated[str, AfterValidator(_cut(64))]
Digest = Annotated[str, AfterValidator(_cut(128))]
Sentence = Annotated[str, AfterValidator(_cut(500))]
Share = Annotated[float | None, AfterValidator(_share)]  # from 0 to 1
Percent = Annotated[float | None, AfterValidator(_percent)]  # from 0 to 100
Size = Annotated[int | None, Field(ge=0, lt=2**63)]  # bytes
# No query and no fragment: what the portal asks for stands after it and must stay the path.
GatewayUrl = Annotated[str, Field(max_length=255, pattern=r"^(https?://[^/?#@\s\\]+(/[^?#\s\\]*)?)?$")]


class Message(BaseModel):
    """Base: unknown fields are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Order(Message):
    """Base of what the portal tells nodes. A node of an earlier version leaves out what it does not know, so that the
    portal is upgraded first and the nodes one after the other; what it must not leave out needs another protocol."""

    model_config = ConfigDict(extra="ignore", frozen=True)
