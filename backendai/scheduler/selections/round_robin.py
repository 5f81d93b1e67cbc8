"""Round-robin: agents in turn by name. The turn survives the pass, and agents that come and go."""

from __future__ import annotations

from backendai.core.messages import Message
from backendai.scheduler.selection import InTurn, Selection

SELECTION = Selection("round-robin", Message("round-robin: one agent after the other"), InTurn, takes_turns=True)
