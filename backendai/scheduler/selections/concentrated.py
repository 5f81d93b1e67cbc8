"""Selection ``concentrated``: chooses the fullest agent that has room. Whole agents then remain free for large
sessions."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.scheduler.selection import LeastLeft, Selection

SELECTION = Selection("concentrated", Message("concentrated: the fullest agent that has room"), LeastLeft)
