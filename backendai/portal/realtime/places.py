"""Limits the websockets of one person, or of one kernel, in a process. Each terminal is a program on the agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from backendai.base.core.messages import Message
from backendai.portal.realtime.targets import Refusal

TOO_MANY = 4029
MOST_EVENTS = 100  # one for each page that is open
MOST_STREAMS = 50  # terminals and logs of one person
MOST_OF_KERNEL = 100

_held: Counter[Hashable] = Counter()


class Places:
    """The counted places of one websocket, released together."""

    def __init__(self) -> None:
        self._taken: list[Hashable] = []

    def take(self, key: Hashable, most: int, kind: str) -> None:
        """Count one more websocket under this key.

        Raises Refusal if ``most`` are open; ``kind`` names them in its text.
        """
        if _held[key] >= most:
            raise Refusal(
                TOO_MANY, Message("{most} {kind} are open: close one, then open another.", most=most, kind=kind)
            )
        _held[key] += 1
        self._taken.append(key)

    def leave(self) -> None:
        """Release all places; may be called twice."""
        for key in self._taken:
            _held[key] -= 1
            if _held[key] <= 0:
                del _held[key]
        self._taken.clear()
