"""The build of one of the platform's own images: its progress or error, and the buttons for the next action."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.activity.jobs import newest_jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import next_try_of, request_build
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.native_sessions import allow_native_sessions, end_native_sessions, runs_natively
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.frame.jobs import percent_of


class ImageBuildPage(PanelPage, TemplateView):
    """The part of the image pages that shows one build; htmx reloads it."""

    section = "images"
    template_name = "web/panel/_image_build.html"
    image: Image

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the progress of the build."""
        self.image = get_object_or_404(Image.objects.kept(), pk=kwargs["pk"])
        if not self._is_part_wanted():
            return redirect("manage:image", pk=self.image.pk)
        return self.render_to_response({"build": builds_shown([self.image])[0]})

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Request a build, or choose how sessions run until it succeeds."""
        self.image = get_object_or_404(Image.objects.kept(), pk=kwargs["pk"])
        problem = ""
        try:
            self._act(request.POST.get("go", ""))
        except UserError as error:
            problem = in_words(error.message)
        if self._is_part_wanted():
            return self.render_to_response({"build": builds_shown([self.image])[0], "problem": problem})
        if problem:
            messages.error(request, problem)
        return redirect("manage:image", pk=self.image.pk)

    def _is_part_wanted(self) -> bool:
        return self.image.is_built_here and bool(self.request.headers.get("HX-Request"))

    def _act(self, action: str) -> None:
        if action == "build":
            request_build(self.viewer, self.image, now=timezone.now())
        elif action == "native":
            allow_native_sessions(self.viewer, now=timezone.now())
        elif action == "containers":
            end_native_sessions(self.viewer)


def builds_shown(images: Iterable[Image]) -> list[dict[str, Any]]:
    """Return the build states of those images that are built here, in at most three queries."""
    made_here = {image.reference: image for image in images if image.is_built_here}
    if not made_here:
        return []
    jobs = newest_jobs(BUILD_JOB, made_here)
    native = {image.process_reference for image in made_here.values() if image.process_reference}
    rows = ImageOnAgent.objects.filter(reference__in=[*made_here, *native]).order_by()
    there = dict(rows.values_list("reference").annotate(number=Count("pk")))
    is_native = runs_natively()
    return [_shown(image, jobs.get(name), there, is_native) for name, image in made_here.items()]


def _shown(image: Image, job: BackgroundJob | None, there: Mapping[str, int], is_native: bool) -> dict[str, Any]:
    has_failed = job is not None and job.status == BackgroundJob.Status.FAILED
    agents = there.get(image.reference, 0)
    is_made = job is None or job.status == BackgroundJob.Status.DONE
    natives = there.get(image.process_reference, 0) if is_made and not agents and not is_native else 0
    return {
        "image": image,
        "job": job,
        "agents": agents,
        "natives": natives,
        "percent": percent_of(job) if job else None,
        "is_running": job is not None and job.is_running,
        "has_failed": has_failed,
        "next_at": next_try_of(job) if job else None,
        "is_native": is_native and not agents,
        "may_run_natively": has_failed and not agents and bool(job and job.result.get("may_run_natively")),
    }
