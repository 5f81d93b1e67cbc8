"""Pages of one image: its build, if the platform builds it, and its pulls to agents before a session needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.core.image_names import pinned
from backendai.base.texts.messages import in_words
from backendai.base.wire.capabilities import Capability
from backendai.domain.activity.jobs import newest_jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import next_try_of, request_build
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.pulls import pulls_of, start_pull
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.native_sessions import allow_native_sessions, end_native_sessions, runs_natively
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import FormPage
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


class _AgentChoice(forms.ModelMultipleChoiceField):
    """A choice of agents, labelled with name, group and whether they have the image."""

    there: frozenset[Any] = frozenset()

    def label_from_instance(self, agent: Any) -> str:
        """Return the label of an agent."""
        has_it = _("present") if agent.pk in self.there else _("not present")
        return f"{agent.name} · {agent.resource_group.name} · {has_it}"


class PullForm(forms.Form):
    """The agents and resource groups that should pull the image."""

    resource_groups = forms.ModelMultipleChoiceField(
        ResourceGroup.objects.all(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label=_l("All agents of these resource groups"),
        help_text=_l("Reachable agents with a container engine and the image's architecture."),
    )
    agents = _AgentChoice(
        Agent.objects.none(), required=False, widget=forms.CheckboxSelectMultiple, label=_l("These agents")
    )

    def __init__(self, image: Image, data: Any = None) -> None:
        super().__init__(data)
        answering = Agent.objects.answering().only("pk", "backend", "capabilities")
        fetching = [agent.pk for agent in answering if Capability.IMAGES in capabilities_of(agent)]
        agents = Agent.objects.filter(pk__in=fetching)
        field = self.fields["agents"]
        assert isinstance(field, _AgentChoice)
        field.queryset = agents.select_related("resource_group")
        field.there = _having(image)


class ImageAgentsPage(FormPage):
    """The agents of one image, and its newest pull."""

    section = "images"
    template_name = "web/panel/image_agents.html"
    model = Image
    list_address = "manage:images"
    row_address = "manage:image-agents"
    submit_label = _l("Pull to the selected agents")
    saved_text = _l("The agents are pulling it; the bell shows the progress.")
    is_atomic = False

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the form for a pull, and the progress of the newest one; for htmx only the progress."""
        if not request.headers.get("HX-Request"):
            return super().get(request, *args, **kwargs)
        self.object, self.template_name = self.find(), "web/panel/_image_pulls.html"
        return self.render_to_response(self.page_context())

    def make_form(self, data: Any = None) -> PullForm:
        return PullForm(self.object, data)

    def save(self, form: PullForm) -> Image:
        """Start the pull by the service."""
        agents, groups = list(form.cleaned_data["agents"]), list(form.cleaned_data["resource_groups"])
        start_pull(self.viewer, self.object, agents=agents, groups=groups, now=timezone.now())
        image: Image = self.object
        return image

    def page_context(self) -> dict[str, Any]:
        """Return the image with its newest pull."""
        job, pulls = pulls_of(self.object)
        back = reverse("manage:image", args=[self.object.pk])
        return {"image": self.object, "job": job, "pulls": pulls, "back_url": back}


def _having(image: Image) -> frozenset[Any]:
    names = [image.reference, pinned(image.reference, image.digest)]
    return frozenset(ImageOnAgent.objects.filter(reference__in=names).values_list("agent", flat=True))
