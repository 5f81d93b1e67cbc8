"""What is done to one machine: switches, emptying, moving."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.accounts.duration_field import TimeSpanField
from backendai.cluster.agents import change_agent
from backendai.cluster.models import Agent, ResourceGroup
from backendai.compute.models import Kernel
from backendai.compute.services.draining import LONGEST_DRAIN, cancel_drain, move_agent, start_drain
from backendai.compute.status import PLACED
from backendai.core.durations import describe_duration
from backendai.core.errors import UserError
from backendai.texts.translation import gettext as _
from backendai.texts.translation import ngettext
from backendai.web.panel.editing import ConfirmPage, FormPage, field_of, show_error
from backendai.web.panel.forms import EditForm


class SwitchForm(EditForm):
    """What can be set of a machine here; the rest it says itself."""

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


class AgentAction(ConfirmPage):
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
        return ngettext("%(number)s kernel", "%(number)s kernels", number) % {"number": number}


class AgentFormAction(AgentAction):
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
            raise UserError(_("Check the marked fields."))
        try:
            return self.done()
        except UserError as error:
            if field_of(self.form, error) is None:
                raise
            show_error(self.form, error)
            raise UserError(_("Check the marked fields.")) from error

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the question with its fields."""
        return super().get_context_data(**({"form": getattr(self, "form", None) or self.make_form()} | kwargs))


class DrainForm(forms.Form):
    """How long what runs there may go on."""

    shown_at: ClassVar[dict[str, str]] = {"ends_at": "within"}

    within = TimeSpanField(
        required=False,
        label=_l("End remaining sessions after"),
        help_text=_l("For example 2h or 3d; empty: nothing is ended. The owners see it at once."),
    )


class DrainPage(AgentFormAction):
    """Empty a machine."""

    title = _l("Drain")
    submit_label = _l("Drain")

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the fields."""
        return DrainForm(data)

    def question(self) -> str:
        """Return what is asked."""
        return (
            _("Change the deadline of %(object)s?") % {"object": self.object}
            if self.object.is_drained
            else _("Drain %(object)s?") % {"object": self.object}
        )

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            _("No new session starts there until you cancel the drain."),
            _("Running sessions continue: %(kernels)s now.") % {"kernels": self.kernels},
            _(
                "After the deadline sessions end with agent-drained; those that are starting, and batch sessions that "
                "asked to run again, wait for another agent."
            ),
        ]

    def done(self) -> str:
        """Begin."""
        within, now = self.form.cleaned_data["within"], timezone.now()
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
    """Use a machine again."""

    title = _l("Cancel the drain")
    submit_label = _l("Accept sessions again")
    is_dangerous = False

    def question(self) -> str:
        """Return what is asked."""
        return _("Cancel the drain of %(object)s?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [self._afterwards(), _("Running sessions are not ended.")]

    def act(self) -> str:
        """Cancel it."""
        cancel_drain(self.viewer, self.object)
        return _("The drain of %(object)s is cancelled.") % {"object": self.object} + f" {self._afterwards()}"

    def _afterwards(self) -> str:
        if self.object.revoked_at:
            return _("It takes no sessions until its credential is renewed and it joins again.")
        if self.object.status == Agent.Status.LOST:
            return _("It takes sessions again when it is back.")
        return _("It takes sessions again from its next sync on, within seconds.")


class MoveForm(forms.Form):
    """Where to."""

    resource_group = forms.ModelChoiceField(ResourceGroup.objects.all(), label=_l("Resource group"), empty_label=None)
    force = forms.BooleanField(
        required=False,
        label=_l("Move it although it runs kernels"),
        help_text=_l("They keep running and count in the old group."),
    )


class MovePage(AgentFormAction):
    """Put a machine into another group."""

    title = _l("Move to another group")
    submit_label = _l("Move to another group")

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the fields."""
        return MoveForm(data, initial={"resource_group": self.object.resource_group_id})

    def question(self) -> str:
        """Return what is asked."""
        return _("Move %(object)s to another resource group?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            _("It belongs to %(resource_group)s and runs %(kernels)s.")
            % {"resource_group": self.object.resource_group, "kernels": self.kernels},
            _("From the next scheduler pass on, sessions of the new group start there."),
        ]

    def done(self) -> str:
        """Move it."""
        group = self.form.cleaned_data["resource_group"]
        move_agent(self.viewer, self.object, group, force=self.form.cleaned_data["force"])
        return _("%(object)s belongs to %(group)s now.") % {"object": self.object, "group": group}
