"""Selection ``round-robin``: chooses agents in turn by name. The next pass continues after the last agent, even if
agents were added or removed."""

from __future__ import annotations

from backendai.base.core.messages import Message
from backendai.scheduler.selection import InTurn, Selection

SELECTION = Selection("round-robin", Message("round-robin: one agent after the other"), InTurn)
