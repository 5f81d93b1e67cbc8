"""Collects the data checks of all apps, for the commands and the tests."""

from __future__ import annotations

from collections.abc import Sequence

from backendai.domain.compute.auditing import CHECKS as OF_SESSIONS
from backendai.domain.compute.auditing import Check, ObservedContainer, World, violations_of
from backendai.domain.pipelines.auditing import RUN_CHECKS
from backendai.domain.serving.auditing import SERVING_CHECKS

__all__ = ["CHECKS", "Check", "ObservedContainer", "World", "run_checks"]

CHECKS: dict[str, Check] = OF_SESSIONS | SERVING_CHECKS | RUN_CHECKS


def run_checks(world: World, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the violations by check, without checks that found none. With ``names`` only these checks run."""
    return violations_of(CHECKS, world, names)
