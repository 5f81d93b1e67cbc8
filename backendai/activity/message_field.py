"""The column of a message: JSON with its template and values, or plain text."""

from __future__ import annotations

from typing import Any

from django.db import models

from backendai.core.messages import Message


class MessageField(models.TextField):
    """Holds a ``Message``; rows of earlier versions with plain text are messages without values."""

    def from_db_value(self, value: str | None, *unused: object) -> Message | None:
        """Return what was stored."""
        return None if value is None else Message.of(value)

    def get_prep_value(self, value: Any) -> Any:
        """Return what to store."""
        return value.stored() if isinstance(value, Message) else super().get_prep_value(value)
