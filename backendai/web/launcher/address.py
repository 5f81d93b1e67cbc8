"""What the address of the launcher says about the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.web.launcher.allocation_fields import CUSTOM

_IN_ADDRESS = frozenset(
    {"image", "name", "session_type", "project", "resource_group", "preset", "cpu", "mem", "cluster_size"}
)


def named_in(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a launch address names of the form's fields: a link can open it filled. Commands and variables
    come from nobody's link."""
    named = {name: value for name, value in asked.items() if name in _IN_ADDRESS or name.startswith("slot.")}
    if any(name in ("cpu", "mem") or name.startswith("slot.") for name in named):
        named.setdefault("preset", CUSTOM)
    return named
