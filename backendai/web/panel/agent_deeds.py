"""What is done to one machine: switches, emptying, moving, its credential, its end."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from backendai.accounts.duration_field import TimeSpanField
from backendai.cluster.agents import change_agent, join_command, renew_credential, revoke_credential
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import Kernel
from backendai.compute.services.draining import LONGEST_DRAIN, cancel_drain, move_agent, start_drain
from backendai.compute.services.retiring import retire_agent
from backendai.compute.status import PLACED
from backendai.core.durations import describe_duration
from backendai.core.errors import UserError
from backendai.web.panel.editing import ConfirmPage, FormPage
from backendai.web.panel.forms import EditForm


class SwitchForm(EditForm):
    """What can be set of a machine here; the rest it says itself."""

    class Meta:
        model = Agent
        fields: ClassVar[list[str]] = ["schedulable", "max_kernels"]
        labels: ClassVar[dict[str, str]] = {"schedulable": "Takes new sessions", "max_kernels": "Most kernels at once"}
        help_texts: ClassVar[dict[str, str]] = {
            "schedulable": "Unticked, nothing new starts there; what runs goes on. To empty it, drain it.",
            "max_kernels": "Empty: as its resource group says.",
        }


class SwitchPage(FormPage):
    """The switches of one machine."""

    section = "agents"
    model = Agent
    form_class = SwitchForm
    audit_name = "agent"
    list_address = "manage:agents"

    def save(self, form: EditForm) -> Any:
        """Write them, as the verb does it."""
        agent = Agent.objects.get(pk=self.object.pk)  # the form has changed its own copy already
        return change_agent(self.viewer, agent, {name: form.cleaned_data[name] for name in SwitchForm.Meta.fields})

    def success_url(self, saved: Any) -> str:
        """Return to the machine."""
        return reverse("manage:agent", args=[saved.pk])


class AgentDeed(ConfirmPage):
    """Base: a question about one machine."""

    section = "agents"
    model = Agent
    list_address = "manage:agents"
    object: Agent

    def success_url(self) -> str:
        """Return to the machine."""
        return reverse("manage:agent", args=[self.object.pk])

    @property
    def kernels(self) -> str:
        """How many kernels it runs, in words."""
        number = Kernel.objects.filter(agent=self.object, status__in=PLACED).count()
        return f"{number} kernel{'' if number == 1 else 's'}"


class AgentFormDeed(AgentDeed):
    """Base: a question with fields."""

    template_name = "web/panel/confirm_form.html"
    is_dangerous = False
    form: forms.Form

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the fields."""
        raise NotImplementedError

    def done(self) -> str:
        """Do it with the fields' values and return the sentence that says so."""
        raise NotImplementedError

    def act(self) -> str:
        """Do it when the fields are right."""
        self.form = self.make_form(self.request.POST)
        if not self.form.is_valid():
            raise UserError("Look at the marked fields.")
        return self.done()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the question with its fields."""
        return super().get_context_data(**({"form": getattr(self, "form", None) or self.make_form()} | kwargs))


class DrainForm(forms.Form):
    """How long what runs there may go on."""

    within = TimeSpanField(
        required=False,
        label="End what still runs after",
        help_text="Such as 2h or 3d; left empty, nothing is ended. The owners see it at once.",
    )


class DrainPage(AgentFormDeed):
    """Empty a machine."""

    title = "Drain"
    submit_label = "Drain"

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the fields."""
        return DrainForm(data)

    def question(self) -> str:
        """Return what is asked."""
        return f"Change the deadline of {self.object}?" if self.object.is_drained else f"Drain {self.object}?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            "No new session starts there until you cancel the drain.",
            f"What runs there goes on: {self.kernels} now.",
            "After the deadline sessions end with agent-drained; those that are starting, and batch sessions that "
            "asked to run again, wait for another agent.",
        ]

    def done(self) -> str:
        """Begin."""
        within, now = self.form.cleaned_data["within"], timezone.now()
        if within is not None and within > LONGEST_DRAIN:
            raise UserError(f"The longest drain is {LONGEST_DRAIN.days} days.")
        number = start_drain(self.viewer, self.object, now=now, ends_at=None if within is None else now + within)
        until = f", until {describe_duration(within)} from now" if within else ""
        return f"{self.object} takes no new sessions; {number} kernel{'' if number == 1 else 's'} may go on{until}."


class CancelDrainPage(AgentDeed):
    """Use a machine again."""

    title = "Cancel the drain"
    submit_label = "Take sessions again"
    is_dangerous = False

    def question(self) -> str:
        """Return what is asked."""
        return f"Cancel the drain of {self.object}?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return ["It takes sessions again from its next sync on, within seconds.", "Nothing that runs there is ended."]

    def act(self) -> str:
        """Cancel it."""
        cancel_drain(self.viewer, self.object)
        return f"{self.object} takes sessions again."


class MoveForm(forms.Form):
    """Where to."""

    resource_group = forms.ModelChoiceField(ResourceGroup.objects.all(), label="Resource group", empty_label=None)
    force = forms.BooleanField(
        required=False,
        label="Move it though it runs kernels",
        help_text="They go on there, and count in the old group.",
    )


class MovePage(AgentFormDeed):
    """Put a machine into another group."""

    title = "Move"
    submit_label = "Move"

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the fields."""
        return MoveForm(data, initial={"resource_group": self.object.resource_group_id})

    def question(self) -> str:
        """Return what is asked."""
        return f"Move {self.object} to another resource group?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            f"It belongs to {self.object.resource_group} and runs {self.kernels}.",
            "From the next scheduler pass on, sessions of the new group start there.",
        ]

    def done(self) -> str:
        """Move it."""
        group = self.form.cleaned_data["resource_group"]
        move_agent(self.viewer, self.object, group, force=self.form.cleaned_data["force"])
        return f"{self.object} belongs to {group} now."


class RevokePage(AgentDeed):
    """Turn a machine away."""

    title = "Revoke the credential"
    submit_label = "Revoke"

    def question(self) -> str:
        """Return what is asked."""
        return f"Refuse {self.object} from now on?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        grace = describe_duration(self.object.resource_group.agent_lost_grace)
        return [
            "All its calls are refused; within a minute it counts as lost.",
            f"What it runs goes on unseen ({self.kernels}). After {grace} those sessions end with agent-lost, and "
            "their slots stay taken until the machine is back or is given up.",
            "It comes back only with a join token made for it: Renew the credential.",
        ]

    def act(self) -> str:
        """Turn it away."""
        revoke_credential(self.viewer, self.object, now=timezone.now())
        return f"{self.object} is refused from now on."


class RenewPage(AgentDeed):
    """Let a machine in with a new credential."""

    title = "Renew the credential"
    submit_label = "Make a join token"
    is_dangerous = False

    def question(self) -> str:
        """Return what is asked."""
        return f"Make a join token for {self.object}?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            "It works once, within a day, and for this machine alone.",
            "The credential that the machine has now is refused from the moment it joins again.",
        ]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the token, this once: it is not stored, so the page is not a redirect."""
        self.object = get_object_or_404(Agent.objects.select_related("resource_group"), pk=self.kwargs["pk"])
        text = renew_credential(self.viewer, self.object, now=timezone.now())
        return self.shown_once(text)

    def shown_once(self, text: str) -> HttpResponse:
        """Return the page with the token's text."""
        context = self.get_context_data(token=text, command=join_command(text))
        return self.response_class(self.request, ["web/panel/join_token.html"], context)


class TerminatePage(AgentDeed):
    """Give a machine up for good."""

    title = "Declare it gone"
    submit_label = "It is gone for good"

    def question(self) -> str:
        """Return what is asked."""
        return f"Declare {self.object} gone for good?"

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            f"What ran there ends with agent-terminated ({self.kernels}), and what it held is free. Batch sessions "
            "that asked for it wait for another agent.",
            "If the machine is alive after all, what runs on it goes on unseen: switch it off.",
            "Its row stays for the history. It comes back only with a join token made for it.",
        ]

    def typed_word(self) -> str:
        """Return the machine's name."""
        return self.object.name

    def act(self) -> str:
        """Give it up."""
        number = retire_agent(self.viewer, self.object, now=timezone.now())
        return f"{self.object} is gone for good; that ended {number} session{'' if number == 1 else 's'}."
