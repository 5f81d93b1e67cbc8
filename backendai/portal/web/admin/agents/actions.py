"""Actions on one agent: settings, drain, and move to another group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.durations import describe_duration
from backendai.base.core.errors import UserError
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.cluster.agents import change_agent
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.draining import LONGEST_DRAIN, cancel_drain, move_agent, start_drain
from backendai.domain.compute.status import PLACED
from backendai.portal.web.admin.editing import ConfirmPage, FormPage, field_of, show_error
from backendai.portal.web.admin.forms import EditForm


class SwitchForm(EditForm):
    """The settings of an agent that administrators change; the agent reports the rest itself."""

    class Meta:
        model = Agent
        fields: ClassVar[list[str]] = ["schedulable", "max_kernels"]
        labels: ClassVar[dict[str, Any]] = {
            "schedulable": _l("Accepts new sessions"),
            "max_kernels": _l("Maximum kernels"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "schedulable": _l(
                "If off, no new sessions start here; running sessions continue. To empty the agent, drain it."
            ),
            "max_kernels": _l("Empty: the limit of its resource group."),
        }


class SwitchPage(FormPage):
    """The settings of one agent."""

    section = "agents"
    model = Agent
    form_class = SwitchForm
    audit_name = "agent"
    submit_label = _l("Save settings")
    list_address = "manage:agents"

    def save(self, form: EditForm) -> Any:
        """Save the settings by the service, with its checks and audit entry."""
        agent = Agent.objects.get(pk=self.object.pk)  # the form has changed its own copy already
        return change_agent(self.viewer, agent, {name: form.cleaned_data[name] for name in SwitchForm.Meta.fields})

    def success_url(self, saved: Any) -> str:
        """Return the address of the agent's page."""
        return reverse("manage:agent", args=[saved.pk])


class AgentAction(ConfirmPage):
    """The base of confirmations of an action on one agent."""

    section = "agents"
    model = Agent
    list_address = "manage:agents"
    object: Agent

    def success_url(self) -> str:
        """Return the address of the agent's page."""
        return reverse("manage:agent", args=[self.object.pk])

    @property
    def kernels(self) -> str:
        """Return the number of the agent's kernels as text."""
        number = Kernel.objects.filter(agent=self.object, status__in=PLACED).count()
        return ngettext("%(number)s kernel", "%(number)s kernels", number) % {"number": number}


class AgentFormAction(AgentAction):
    """The base of confirmations with form fields."""

    template_name = "web/panel/confirm_form.html"
    is_dangerous = False
    form: forms.Form

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the form of the confirmation."""
        raise NotImplementedError

    def done(self) -> str:
        """Run the action with the form's values; return the message for the page."""
        raise NotImplementedError

    def act(self) -> str:
        """Run the action if the form is valid. Raises UserError otherwise."""
        self.form = self.make_form(self.request.POST)
        if not self.form.is_valid():
            raise UserError(_("Check the marked fields."))
        try:
            return self.done()
        except UserError as error:
            if field_of(self.form, error) is None:
                raise
            show_error(self.form, error)
            raise UserError(_("Check the marked fields.")) from error

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the form."""
        return super().get_context_data(**({"form": getattr(self, "form", None) or self.make_form()} | kwargs))


class DrainForm(forms.Form):
    """The time after which the remaining sessions end."""

    shown_at: ClassVar[dict[str, str]] = {"ends_at": "within"}

    within = TimeSpanField(
        required=False,
        label=_l("End remaining sessions after"),
        help_text=_l("Empty: nothing is ended. The owners see it at once."),
    )
    shown = TimeSpanField(required=False, widget=forms.HiddenInput)  # it passes while the page is open


class DrainPage(AgentFormAction):
    """Drains an agent, or changes the deadline of a drain."""

    title = _l("Drain")
    submit_label = _l("Drain agent")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context; a drain that has started gets another deadline, or none."""
        label = {"submit_label": _("Change the deadline")} if self.object.is_drained else {}
        return super().get_context_data(**(label | kwargs))

    def make_form(self, data: Any = None) -> forms.Form:
        ends_at = self.object.drain_ends_at
        left = ends_at and timedelta(seconds=max(0, round((ends_at - timezone.now()).total_seconds())))
        return DrainForm(data, initial={"within": left, "shown": left})

    def question(self) -> str:
        return (
            _("Change the deadline of %(object)s?") % {"object": self.object}
            if self.object.is_drained
            else _("Drain %(object)s?") % {"object": self.object}
        )

    def consequences(self) -> list[str]:
        return [
            _("No new session starts there until you cancel the drain."),
            _("Running sessions continue: %(kernels)s now.") % {"kernels": self.kernels},
            _(
                "After the deadline sessions end with agent-drained; those that are starting, and batch sessions that "
                "asked to run again, wait for another agent."
            ),
        ]

    def done(self) -> str:
        """Start the drain; return the message for the page. Raises UserError for a deadline that is too late."""
        within, now = self.form.cleaned_data["within"], timezone.now()
        if self.object.is_drained and within == self.form.cleaned_data["shown"]:
            return _("The deadline is unchanged.")
        if within is not None and within > LONGEST_DRAIN:
            raise UserError(_("The longest drain is %(days)s days.") % {"days": LONGEST_DRAIN.days}, field="within")
        number = start_drain(self.viewer, self.object, now=now, ends_at=None if within is None else now + within)
        until = _(", until %(within)s from now") % {"within": describe_duration(within)} if within else ""
        text = ngettext(
            "%(agent)s takes no new sessions; %(number)s kernel may continue%(until)s.",
            "%(agent)s takes no new sessions; %(number)s kernels may continue%(until)s.",
            number,
        )
        return text % {"agent": self.object, "number": number, "until": until}


class CancelDrainPage(AgentAction):
    """Cancels the drain of an agent."""

    title = _l("Cancel the drain")
    submit_label = _l("Accept sessions again")
    is_dangerous = False

    def question(self) -> str:
        return _("Cancel the drain of %(object)s?") % {"object": self.object}

    def consequences(self) -> list[str]:
        return [self._afterwards(), _("Running sessions are not ended.")]

    def act(self) -> str:
        cancel_drain(self.viewer, self.object)
        return _("The drain of %(object)s is cancelled.") % {"object": self.object} + f" {self._afterwards()}"

    def _afterwards(self) -> str:
        if self.object.revoked_at:
            return _("It takes no sessions until its credential is renewed and it joins again.")
        if self.object.status == Agent.Status.LOST:
            return _("It takes sessions again when it is back.")
        return _("It takes sessions again from its next sync on, within seconds.")


class MoveForm(forms.Form):
    """The resource group to move an agent to."""

    resource_group = forms.ModelChoiceField(ResourceGroup.objects.all(), label=_l("Resource group"), empty_label=None)
    force = forms.BooleanField(
        required=False,
        label=_l("Move it although it runs kernels"),
        help_text=_l("They keep running and count in the old group."),
    )


class MovePage(AgentFormAction):
    """Moves an agent to another resource group."""

    title = _l("Move to another group")
    submit_label = _l("Move to another group")

    def make_form(self, data: Any = None) -> forms.Form:
        return MoveForm(data, initial={"resource_group": self.object.resource_group_id})

    def question(self) -> str:
        return _("Move %(object)s to another resource group?") % {"object": self.object}

    def consequences(self) -> list[str]:
        return [
            _("It belongs to %(resource_group)s and runs %(kernels)s.")
            % {"resource_group": self.object.resource_group, "kernels": self.kernels},
            _("From the next scheduler pass on, sessions of the new group start there."),
        ]

    def done(self) -> str:
        group = self.form.cleaned_data["resource_group"]
        move_agent(self.viewer, self.object, group, force=self.form.cleaned_data["force"])
        return _("%(object)s belongs to %(group)s now.") % {"object": self.object, "group": group}
