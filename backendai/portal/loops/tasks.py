"""The Celery tasks that run the passes, started by hints and by beat."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task
from django.utils import timezone

from backendai.domain.cluster.node_jobs import follow_jobs as follow
from backendai.portal.loops import folder_copies as filling
from backendai.portal.loops import folders, forecasts, idle, loops, scans, tags, what_ifs
from backendai.portal.loops.repair import observe


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
    """Run one observe pass."""
    observe.run_observe(timezone.now())


@shared_task(name="controller.run_idle", ignore_result=True)
def run_idle() -> None:
    """Run one idle pass."""
    idle.run_idle(timezone.now())


@shared_task(name="controller.run_forecasts", ignore_result=True)
def run_forecasts() -> None:
    """Forecast the starts of pending sessions."""
    forecasts.run_forecasts(timezone.now())


@shared_task(name="controller.run_serving", ignore_result=True)
def run_serving() -> None:
    """Run one pass over inference endpoints."""
    loops.run_serving(timezone.now())


@shared_task(name="controller.read_metrics", ignore_result=True)
def read_metrics() -> None:
    """Ask Prometheus for the values of scaling rules."""
    loops.read_metrics(timezone.now())


@shared_task(name="controller.run_pipelines", ignore_result=True)
def run_pipelines() -> None:
    """Run one pass over the runs of arrays and pipelines."""
    loops.run_pipelines(timezone.now())


@shared_task(name="controller.run_folders", ignore_result=True)
def run_folders() -> None:
    """Start the pass over folders in the background."""
    folders.begin(timezone.now())


@shared_task(name="controller.fill_folders", ignore_result=True)
def fill_folders() -> None:
    """Start copies into new folders in the background."""
    filling.begin()


@shared_task(name="controller.schedule_group", ignore_result=True)
def schedule_group(group_id: int) -> None:
    """Run one scheduler pass over one group."""
    loops.schedule_group(group_id, timezone.now())


@shared_task(name="controller.scan_registry", ignore_result=True)
def scan_registry(job_id: str) -> None:
    """Start scanning a registry in the background."""
    scans.begin(UUID(job_id))


@shared_task(name="controller.run_what_if", ignore_result=True)
def run_what_if(job_id: str) -> None:
    """Start a replay in the background."""
    what_ifs.begin(UUID(job_id))


@shared_task(name="controller.remove_tags", ignore_result=True)
def remove_tags() -> None:
    """Start deleting tags of deleted images in the background."""
    tags.begin()


@shared_task(name="controller.follow_jobs", ignore_result=True)
def follow_jobs() -> None:
    """End jobs of agents that were cancelled before the agents started them."""
    follow(timezone.now())
