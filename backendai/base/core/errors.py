"""Errors, grouped by the person who can correct them.

A ``UserError`` is shown to the user unchanged: it names the field, the number and the limit. A ``PlatformError`` is a
fault of the platform: it is logged with its context, and users see only its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.base.core.messages import Message, gaps


class BackendAIError(Exception):
    """Base of every error that this project raises on purpose; ``code`` is stable and kebab-case."""

    code = "error"

    def __init__(self, template: str, /, *, code: str | None = None, **details: Any) -> None:
        """Store the message and its details. ``template``: a finished ``Message``, or a literal whose named gaps
        ``details`` fill."""
        self.code = code or self.code
        if isinstance(template, Message):
            self.message = template
        else:
            named = gaps(template)
            self.message = Message(template, **{name: value for name, value in details.items() if name in named})
        # The message's values override the details, as the message has read iterators into tuples.
        self.details: Mapping[str, Any] = {**details, **self.message.values}
        super().__init__(self.message)


class UserError(BackendAIError):
    """The request is invalid. ``field``: the input to change (None: no single field)."""

    code = "invalid-request"

    def __init__(self, template: str, /, *, field: str | None = None, code: str | None = None, **details: Any) -> None:
        super().__init__(template, code=code, **details)
        self.field = field


class NotFound(UserError):
    """The object does not exist, or the user has no right to see it; both give the same error."""

    code = "not-found"


class Conflict(UserError):
    """The request is valid but conflicts with the current state (a taken name, a finished session)."""

    code = "conflict"


class Changed(Conflict):
    """The object has changed since the request was prepared."""

    code = "changed"


class KeyReused(Conflict):
    """The request's idempotency key belongs to an earlier, different request."""

    code = "idempotency-key-reused"


class StorageFull(UserError):
    """The portal's disk has no room for the request."""

    code = "storage-full"


class Overloaded(UserError):
    """Too many requests of this kind are being processed; the next is taken when one has ended."""

    code = "busy"


class BadAnswer(UserError):
    """A program in a session gave an answer that breaks the protocol; nothing of it was used."""

    code = "wrong-answer"


class NotAllowed(UserError):
    """The user has the right to see the object, but not the right to do this with it."""

    code = "not-allowed"


class PlatformError(BackendAIError):
    """A part of the platform failed: an agent, the container engine, the broker."""

    code = "platform-error"
