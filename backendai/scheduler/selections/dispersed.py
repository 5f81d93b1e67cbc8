"""Selection ``dispersed``: chooses the emptiest agent, so that sessions disturb each other least."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.scheduler.selection import MostLeft, Selection

SELECTION = Selection("dispersed", Message("dispersed: the emptiest agent"), MostLeft)
