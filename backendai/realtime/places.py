"""How many websockets one person, or one kernel, may hold in a process: each terminal is a program on the node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from backendai.core.messages import Message
from backendai.realtime.targets import Refusal

TOO_MANY = 4029
MOST_EVENTS = 100  # one for each page that is open
MOST_STREAMS = 50  # terminals and logs of one person
MOST_OF_KERNEL = 100

_held: Counter[Hashable] = Counter()


class Places:
    """The places of one websocket, given back together."""

    def __init__(self) -> None:
        self._taken: list[Hashable] = []

    def take(self, key: Hashable, most: int, kind: str) -> None:
        """Take one more place. Raises a Refusal when ``most`` are taken."""
        if _held[key] >= most:
            raise Refusal(
                TOO_MANY, Message("{most} {kind} are open: close one, then open another.", most=most, kind=kind)
            )
        _held[key] += 1
        self._taken.append(key)

    def leave(self) -> None:
        """Give all of them back; may be called twice."""
        for key in self._taken:
            _held[key] -= 1
            if _held[key] <= 0:
                del _held[key]
        self._taken.clear()
