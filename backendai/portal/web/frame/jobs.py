"""Texts about background jobs."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _noop

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.activity.models import BackgroundJob

_KINDS = {
    "folder.fill": _noop("Copying files into folder"),
    "folder.nearly-full": _noop("Nearly full: folder"),
    "group.what-if": _noop("What if: resource group"),
    "home.store": _noop("Storing the home of session"),
    "image.commit": _noop("Saving as image"),
    "image.build": _noop("Building image"),
    "image.pull": _noop("Pulling image to agents"),
    "image.untag": _noop("Deleting from its registry:"),
    "registry.scan": _noop("Scanning registry"),
}


def title_of(job: BackgroundJob) -> str:
    """Return the title of a job: ``Building image local/python:latest``."""
    return f"{_(_KINDS[job.kind]) if job.kind in _KINDS else job.kind} {job.subject}"


def percent_of(job: BackgroundJob) -> int | None:
    """Return the job's progress from 0 to 100, or None if it is unknown."""
    return None if job.share is None else int(100 * job.share)


def counted(job: BackgroundJob) -> str:
    """Return the number of finished units: ``3 of 12 images``. Empty if the job counts no units."""
    if not job.unit or not (job.done or job.total):
        return ""
    said = {"done": job.done, "total": job.total, "unit": in_words(job.unit)}
    return (_("%(done)s of %(total)s %(unit)s") if job.total else _("%(done)s %(unit)s")) % said
