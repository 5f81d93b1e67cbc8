"""Errors, sorted by who must act on them.

A ``UserError`` is shown to the person who asked, word for word: it names the field, the number and the limit.
A ``PlatformError`` is ours to mend: it is logged with its context and shown only with an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.core.messages import Message, gaps


class BackendAIError(Exception):
    """Base of every error that this project raises on purpose; ``code`` is stable and kebab-case."""

    code = "error"

    def __init__(self, template: str, /, *, code: str | None = None, **details: Any) -> None:
        """``template`` is a literal with gaps, filled from ``details``, or a finished message."""
        self.code = code or self.code
        self.details: Mapping[str, Any] = details
        if isinstance(template, Message):
            self.message = template
        else:
            named = gaps(template)
            self.message = Message(template, **{name: value for name, value in details.items() if name in named})
            self.details = {**details, **self.message.values}  # lists: what was given may have been an iterator
        super().__init__(self.message)


class UserError(BackendAIError):
    """The request cannot be met as it stands; ``field`` says which input to change (None: not one field)."""

    code = "invalid-request"

    def __init__(self, template: str, /, *, field: str | None = None, code: str | None = None, **details: Any) -> None:
        super().__init__(template, code=code, **details)
        self.field = field


class NotFound(UserError):
    """The object does not exist, or the one who asks may not know that it does: both look the same."""

    code = "not-found"


class Conflict(UserError):
    """The request is fine but something else stands in its way now (a taken name, a finished session)."""

    code = "conflict"


class Changed(Conflict):
    """What the request was made from is not what is there any more."""

    code = "changed"


class StorageFull(UserError):
    """A disk of the portal has no room for what the request adds."""

    code = "storage-full"


class NotAllowed(UserError):
    """The one who asks may see the object, but may not do this to it."""

    code = "not-allowed"


class PlatformError(BackendAIError):
    """Something of ours failed: a node, the container engine, the broker."""

    code = "platform-error"
