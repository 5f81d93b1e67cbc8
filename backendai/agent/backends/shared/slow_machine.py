"""What users are told when something has not started within its time limit on a slow machine."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.base.process import slowness

_TELLING = 1.5  # from this factor on, slowness may be the cause


def with_cause(message: str) -> Message:
    """Return the message, followed by a sentence about this machine if it is slow now."""
    found = slowness.measure()
    if slowness.slowness(found) < _TELLING:
        return Message.of(message)
    if found.load < found.cores * _TELLING:
        return Message.joined([message, Message("This machine is slow or busy now, which may be the cause.")])
    busy = Message(
        "This machine is busy now (load {load} on {cores} cores), which may be the cause.",
        load=f"{found.load:.0f}",
        cores=found.cores,
    )
    return Message.joined([message, busy])
