"""A system check: the default strategy of new resource groups must exist."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from backendai.domain.cluster.groups.rules import SEQUENCE, strategies


@register("settings")
def check_default_sequence(**kwargs: Any) -> list[CheckMessage]:
    """BACKENDAI_DEFAULT_SEQUENCE names a sequence."""
    known = strategies(SEQUENCE)
    if settings.DEFAULT_SEQUENCE in known:
        return []
    text = f"BACKENDAI_DEFAULT_SEQUENCE: unknown sequence {settings.DEFAULT_SEQUENCE!r}."
    return [Error(text, f"Use one of {', '.join(known)}, or leave it unset.", id="cluster.E001")]
