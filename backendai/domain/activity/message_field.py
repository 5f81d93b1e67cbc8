"""A model field for messages: stores JSON with template and values, or plain text."""

from __future__ import annotations

from typing import Any

from django.db import models

from backendai.base.core.messages import Message


class MessageField(models.TextField):
    """Stores a ``Message``. Rows of earlier versions contain plain text and are messages without values."""

    def from_db_value(self, value: str | None, *unused: object) -> Message | None:
        """Return the stored message."""
        return None if value is None else Message.of(value)

    def get_prep_value(self, value: Any) -> Any:
        """Return the text to store."""
        return value.stored() if isinstance(value, Message) else super().get_prep_value(value)
