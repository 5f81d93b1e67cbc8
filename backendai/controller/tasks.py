"""Doors: hints and beat's ticks call the loops."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task
from django.utils import timezone

from backendai.cluster.node_jobs import follow_jobs as follow
from backendai.controller import filling, folders, idle, loops, observe, scans, serving, tags


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


@shared_task(name="controller.run_idle", ignore_result=True)
def run_idle() -> None:
    """Warn of idle sessions, and end those that were warned for long enough."""
    idle.run_idle(timezone.now())


@shared_task(name="controller.run_serving", ignore_result=True)
def run_serving() -> None:
    """Bring inference endpoints nearer to what they should be."""
    serving.run_serving(timezone.now())


@shared_task(name="controller.run_folders", ignore_result=True)
def run_folders() -> None:
    """Look at storage hosts and folders, beside the passes."""
    folders.begin(timezone.now())


@shared_task(name="controller.fill_folders", ignore_result=True)
def fill_folders() -> None:
    """Copy files into new folders, beside the passes."""
    filling.begin()


@shared_task(name="controller.schedule_group", ignore_result=True)
def schedule_group(group_id: int) -> None:
    """Run one scheduler pass over one group."""
    loops.schedule_group(group_id, timezone.now())


@shared_task(name="controller.scan_registry", ignore_result=True)
def scan_registry(job_id: str) -> None:
    """Look through a registry, beside the passes."""
    scans.begin(UUID(job_id))


@shared_task(name="controller.remove_tags", ignore_result=True)
def remove_tags() -> None:
    """Take tags of deleted images out of their registries, beside the passes."""
    tags.begin()


@shared_task(name="controller.follow_jobs", ignore_result=True)
def follow_jobs() -> None:
    """End jobs of agents that somebody has cancelled before their agents began."""
    follow(timezone.now())
