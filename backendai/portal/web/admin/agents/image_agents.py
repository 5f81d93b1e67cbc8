"""Pulls an image to agents before a session needs it, and shows the progress of each agent."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.core.image_names import pinned
from backendai.base.wire.capabilities import Capability
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.pulls import pulls_of, start_pull
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import show_error


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
        label=gettext_lazy("All agents of these resource groups"),
        help_text=gettext_lazy("Reachable agents with a container engine and the image's architecture."),
    )
    agents = _AgentChoice(
        Agent.objects.none(), required=False, widget=forms.CheckboxSelectMultiple, label=gettext_lazy("These agents")
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


class ImageAgentsPage(PanelPage, TemplateView):
    """The agents of one image, and its newest pull."""

    section = "images"
    template_name = "web/panel/image_agents.html"
    image: Image

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the form for a pull, and the progress of the newest one; for htmx only the progress."""
        self.image = get_object_or_404(Image, pk=kwargs["pk"])
        if request.headers.get("HX-Request"):
            self.template_name = "web/panel/_image_pulls.html"
            return self.render_to_response(_pull_facts(self.image))
        return self.render_to_response(self.get_context_data(form=PullForm(self.image)))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Start the pull."""
        self.image = get_object_or_404(Image, pk=kwargs["pk"])
        form = PullForm(self.image, request.POST)
        if form.is_valid():
            agents, groups = list(form.cleaned_data["agents"]), list(form.cleaned_data["resource_groups"])
            try:
                start_pull(self.viewer, self.image, agents=agents, groups=groups, now=timezone.now())
            except UserError as error:
                show_error(form, error)
            else:
                messages.success(request, _("The agents are pulling it; the bell shows the progress."))
                return redirect("manage:image-agents", pk=self.image.pk)
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the form and the newest pull."""
        shown = {"title": self.image.name, "back_url": reverse("manage:image", args=[self.image.pk])}
        return super().get_context_data(**(shown | _pull_facts(self.image) | kwargs))


def _pull_facts(image: Image) -> dict[str, Any]:
    job, pulls = pulls_of(image)
    return {"image": image, "job": job, "pulls": pulls}


def _having(image: Image) -> frozenset[Any]:
    names = [image.reference, pinned(image.reference, image.digest)]
    return frozenset(ImageOnAgent.objects.filter(reference__in=names).values_list("agent", flat=True))
