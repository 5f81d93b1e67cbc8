"""Fields of answers that several bodies have."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.base.core.messages import values_of
from backendai.base.core.slots import Slots


class DecimalAmounts(serializers.DictField):
    """Amounts by slot, as decimal strings."""

    child = serializers.CharField()

    def to_representation(self, value: Any) -> dict[str, str]:
        """Return the amounts of ``Slots``, or those that are stored as texts."""
        return value.to_json() if isinstance(value, Slots) else super().to_representation(value)


class MessageValues(serializers.DictField):
    """The values in a message, which is the source."""

    def __init__(self, source: str) -> None:
        super().__init__(source=source, read_only=True, help_text="The values in the message, by name.")

    def to_representation(self, message: Any) -> dict[str, Any]:
        """Return the values by name."""
        return values_of(message)
