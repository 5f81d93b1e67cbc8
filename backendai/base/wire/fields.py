"""Field types of messages. The portal does not trust agents: it shortens their values to the size of its database
columns and pages."""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from backendai.base.core import messages

_LARGEST_IMAGE = 2**50  # bytes
_LONGEST_VALUES = 4000  # characters of JSON
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z|[0-9A-Fa-f:.]+\Z")


def _cut(length: int) -> Callable[[str], str]:
    return lambda text: text.replace("\0", "")[:length]


def _share(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else min(max(value, 0.0), 1.0)


def _percent(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(min(max(value, 0.0), 100.0), 1)


def _plausible(value: int | None) -> int | None:
    """Return the size in bytes, or None if no real image is that large. Sizes are only displayed, so a wrong size must
    not fail a kernel."""
    return None if value is not None and value > _LARGEST_IMAGE else value


def _reachable(url: str) -> str:
    """Return the gateway's address unchanged; it may be empty. Raises ValueError without a usable host and port, and
    for link-local, multicast and unspecified addresses."""
    if not url:
        return url
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not _HOST.match(host) or parts.port == 0:  # .port raises ValueError above 65535
        raise ValueError("the address of the gateway has no usable host and port")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return url
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise ValueError("the address of the gateway is link-local, multicast or unspecified")
    return url


Word = Annotated[str, AfterValidator(_cut(32))]
Name = Annotated[str, AfterValidator(_cut(64))]
Digest = Annotated[str, AfterValidator(_cut(128))]
Sentence = Annotated[str, AfterValidator(_cut(500))]
Share = Annotated[float | None, AfterValidator(_share)]  # from 0 to 1
Percent = Annotated[float | None, AfterValidator(_percent)]  # from 0 to 100
# The most entries that an agent may send in one message. It leaves out further entries.
MOST_WIDEST = 8
MOST_SLOTS, MOST_NOTES, MOST_IMAGES, MOST_LABELS, MOST_KERNELS = 32, 64, 5000, 64, 10_000
_SlotName = Annotated[str, Field(max_length=64)]
_Amount = Annotated[str, Field(max_length=32)]  # as a decimal
Capacity = Annotated[dict[_SlotName, _Amount], Field(max_length=MOST_SLOTS)]
Capabilities = Annotated[list[Name], Field(max_length=128)]
_LabelName = Annotated[str, Field(max_length=255)]
_LabelText = Annotated[str, Field(max_length=4096)]
Labels = Annotated[dict[_LabelName, _LabelText], Field(max_length=MOST_LABELS)]
Generation = Annotated[int, Field(ge=0, lt=2**31)]  # of a kernel
ExitCode = Annotated[int | None, Field(ge=-(2**31), lt=2**31)]
Size = Annotated[int | None, Field(ge=0, lt=2**63)]  # bytes
ImageBytes = Annotated[Size, AfterValidator(_plausible)]
# No query and no fragment: the portal appends a path to the address.
_Address = Annotated[str, Field(max_length=255, pattern=r"^(https?://[^/?#@\s\\]+(/[^?#\s\\]*)?)?$")]
GatewayUrl = Annotated[_Address, AfterValidator(_reachable)]


class Message(BaseModel):
    """Base of messages: immutable; unknown fields are ignored, as the sender may be newer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class TextReport(Message):
    """Base of reports with a text. ``message``: the text in English. ``told``: the template and values of the text, if
    it has values."""

    message: Sentence = ""
    told: dict[str, JsonValue] | None = Field(default=None, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _with_values(cls, data: Any) -> Any:
        """Fill ``told`` with the template and values of ``message``, if that is a ``core.messages.Message`` with
        values. A given ``told`` is kept."""
        message = data.get("message") if isinstance(data, dict) else None
        if isinstance(message, messages.Message) and message.values and "told" not in data:
            return {**data, "told": message.data()}
        return data

    @property
    def full_message(self) -> messages.Message:
        """The message with its values, or without them if the peer is older or the values were too long."""
        if self.told and len(json.dumps(self.told)) <= _LONGEST_VALUES:
            return messages.Message.of(self.told)
        return messages.Message.of(self.message)


def told_of(message: str) -> dict[str, JsonValue]:
    """Return the field with template and values that goes beside a message in an answer; empty if it has no values."""
    return {"told": message.data()} if isinstance(message, messages.Message) and message.values else {}


def text_of(message: Any, told: Any) -> messages.Message:
    """Return the message of an answer from its English text and the field of ``told_of``. Raises ValueError."""
    return TextReport(message=str(message)[: messages.LONGEST], told=told).full_message


class Order(Message):
    """Base of messages that the portal sends to agents."""
