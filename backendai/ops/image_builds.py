"""Building the platform's own images in the background, with progress that waiting sessions show."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import docker
from django.utils import timezone
from docker.errors import DockerException, ImageNotFound

from backendai.activity.jobs import finish_job, report_progress, start_job
from backendai.catalog.models import Image
from backendai.catalog.services import BUILD_JOB
from backendai.cluster.models import ResourceGroup
from backendai.ops.engine import engine_address
from backendai.wire.broker import hint
from backendai.wire.queues import CONTROL_QUEUE

logger = logging.getLogger(__name__)

_LONGEST_STEP = timedelta(hours=1)  # that says nothing: a big layer over a slow line
_WRITE_EVERY = 2.0  # seconds between two writes of the progress


def build_missing(builder: Path, log: Path) -> int:
    """Build every image of the catalogue that is made on this machine and is not there; returns how many failed."""
    missing = [image for image in Image.objects.filter(is_built_here=True) if not _is_there(image.reference)]
    return sum(not build(image, builder, log) for image in missing)


def build(image: Image, builder: Path, log: Path) -> bool:
    """Build one image, writing its progress; returns whether it is there now."""
    message = f"Building image {image.name}."
    job = start_job(BUILD_JOB, image.reference, message, now=timezone.now(), silence_limit=_LONGEST_STEP)
    written = 0.0
    for line in _lines(builder, image.name, log):
        kind, _, rest = line.strip().partition(" ")
        if kind == "progress" and time.monotonic() - written > _WRITE_EVERY:
            share, _, sentence = rest.partition(" ")
            report_progress(job.pk, float(share), sentence, now=timezone.now())
            written = time.monotonic()
            _wake()
        elif kind == "failed":
            _, _, told = rest.partition(" ")
            sentence, _, fix = told.partition(" | ")
            finish_job(job.pk, message=sentence, now=timezone.now(), failed=True, fix=fix)
            _wake()
            return False
        elif kind == "done":
            finish_job(job.pk, message=f"Image {image.name} is built.", now=timezone.now())
            _wake()
            return True
    fix = f"Read {log}, then run {builder}."
    finish_job(job.pk, message="The build ended without a word.", now=timezone.now(), failed=True, fix=fix)
    _wake()
    return False


def _is_there(reference: str) -> bool:
    try:
        docker.APIClient(base_url=engine_address(), timeout=10).inspect_image(reference)
    except ImageNotFound:
        return False
    except DockerException:
        return True  # without an engine there is nothing to build with; native processes need no image
    return True


def _lines(builder: Path, name: str, log: Path) -> Iterator[str]:
    command = [sys.executable, str(builder), "--only", name, "--progress", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as process:
        yield from process.stdout or ()


def _wake() -> None:
    """Let the scheduler look again, so that those who wait see the progress."""
    for group_id in ResourceGroup.objects.filter(is_active=True).values_list("pk", flat=True):
        hint("controller.schedule_group", group_id, queue=CONTROL_QUEUE)
