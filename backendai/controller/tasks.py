"""Doors: hints and beat's ticks call the loops."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from backendai.controller import loops, observe


@shared_task(name="controller.run_pass", ignore_result=True)
def run_pass() -> None:
    """Run one scheduler pass over all groups."""
    loops.run_pass(timezone.now())


@shared_task(name="controller.run_repair", ignore_result=True)
def run_repair() -> None:
    """Run one repair pass."""
    loops.run_repair(timezone.now())


@shared_task(name="controller.run_observe", ignore_result=True)
def run_observe() -> None:
    """Count what sessions hold."""
    observe.run_observe(timezone.now())


@shared_task(name="controller.schedule_group", ignore_result=True)
def schedule_group(group_id: int) -> None:
    """Run one scheduler pass over one group."""
    loops.schedule_group(group_id, timezone.now())
