"""Actions on one agent: settings, drain, move to another group, credential, and permanent removal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from backendai.base.core.durations import describe_duration
from backendai.base.core.errors import UserError
from backendai.base.texts.isolation import isolated
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.base.texts.translation import ngettext
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.cluster.agents import (
    change_agent,
    guessed_address,
    is_closed_to_others,
    join_command,
    renew_credential,
    revoke_credential,
)
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.life.draining import (
    LONGEST_DRAIN,
    cancel_drain,
    lost_at_deadline,
    move_agent,
    start_drain,
)
from backendai.domain.compute.services.life.retiring import retire_agent
from backendai.domain.compute.status import PLACED
from backendai.portal.web.admin.editing import ConfirmFormPage, ConfirmPage, FormPage
from backendai.portal.web.admin.forms import EditForm

_MOST_NAMED = 5


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
    submit_label = _l("Save settings")
    list_address = "manage:agents"
    row_address = "manage:agent"

    def save(self, form: EditForm) -> Any:
        """Save the settings by the service, with its checks and audit entry."""
        return change_agent(self.viewer, self.find(), form.values())


class AgentAction(ConfirmPage):
    """The base of confirmations of an action on one agent."""

    section = "agents"
    model = Agent
    list_address = "manage:agents"
    row_address = "manage:agent"
    object: Agent

    def get_queryset(self) -> QuerySet[Agent]:
        """Return all agents with their groups."""
        return Agent.objects.select_related("resource_group")

    @property
    def kernels(self) -> str:
        """Return the number of the agent's kernels as text."""
        number = Kernel.objects.filter(agent=self.object, status__in=PLACED).count()
        return ngettext("%(number)s kernel", "%(number)s kernels", number) % {"number": number}


class DrainForm(forms.Form):
    """The time after which the remaining sessions end."""

    shown_at: ClassVar[dict[str, str]] = {"ends_at": "within"}

    within = TimeSpanField(
        required=False,
        label=_l("End remaining sessions after"),
        help_text=_l("Empty: nothing is ended. The owners see it at once."),
    )
    shown = TimeSpanField(required=False, widget=forms.HiddenInput)  # it passes while the page is open


class DrainPage(AgentAction, ConfirmFormPage):
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
                "After the deadline sessions are stopped with their files and resumed on another agent; those that are "
                "starting, and batch sessions that asked to run again, wait for one. What cannot be stopped ends."
            ),
            *self._losses(),
        ]

    def _losses(self) -> list[str]:
        lost = lost_at_deadline(self.object)
        if not lost:
            return []
        names = ", ".join(isolated(session.name) for session in lost[:_MOST_NAMED])
        names += ", …" if len(lost) > _MOST_NAMED else ""
        text = ngettext(
            "%(number)s session cannot be stopped and would end with its work: %(names)s.",
            "%(number)s sessions cannot be stopped and would end with their work: %(names)s.",
            len(lost),
        )
        return [text % {"number": len(lost), "names": names}]

    def done(self, form: forms.Form) -> str:
        """Start the drain; return the message for the page. Raises UserError for a deadline that is too late."""
        within, now = form.cleaned_data["within"], timezone.now()
        if self.object.is_drained and within == form.cleaned_data["shown"]:
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
    question_text = _l("Cancel the drain of %(object)s?")
    is_dangerous = False

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


class MovePage(AgentAction, ConfirmFormPage):
    """Moves an agent to another resource group."""

    title = _l("Move to another group")
    submit_label = _l("Move to another group")
    question_text = _l("Move %(object)s to another resource group?")

    def make_form(self, data: Any = None) -> forms.Form:
        return MoveForm(data, initial={"resource_group": self.object.resource_group_id})

    def consequences(self) -> list[str]:
        return [
            _("It belongs to %(resource_group)s and runs %(kernels)s.")
            % {"resource_group": self.object.resource_group, "kernels": self.kernels},
            _("From the next scheduler pass on, sessions of the new group start there."),
        ]

    def done(self, form: forms.Form) -> str:
        group = form.cleaned_data["resource_group"]
        move_agent(self.viewer, self.object, group, force=form.cleaned_data["force"])
        return _("%(object)s belongs to %(group)s now.") % {"object": self.object, "group": group}


class RevokePage(AgentAction):
    """Revokes the credential of an agent."""

    title = _l("Revoke the credential")
    submit_label = _l("Revoke credential")
    question_text = _l("Revoke the credential of %(object)s?")

    def consequences(self) -> list[str]:
        grace = describe_duration(self.object.resource_group.agent_lost_grace)
        return [
            _("Its requests are rejected; within a minute it is shown as lost."),
            _(
                "Running sessions continue but are not visible (%(kernels)s). After %(grace)s they are "
                "marked lost; their resources stay allocated until the agent returns or is removed."
            )
            % {"kernels": self.kernels, "grace": grace},
            _("To let it rejoin, renew its credential."),
        ]

    def act(self) -> str:
        revoke_credential(self.viewer, self.object, now=timezone.now())
        return _("Access of %(object)s is revoked.") % {"object": self.object}


class RenewPage(AgentAction):
    """Creates a join token with which an agent gets a new credential."""

    title = _l("Renew the credential")
    submit_label = _l("Create a join token")
    question_text = _l("Create a join token for %(object)s?")
    is_dangerous = False

    def consequences(self) -> list[str]:
        told = [
            _("It works once, within a day, and for this agent only."),
            _("The current credential is rejected from the moment the agent joins again."),
            _("Stop the agent that runs there before you run the command."),
        ]
        if Capability.NATIVE in capabilities_of(self.object):
            told.append(
                _("Its sessions are native processes: they end with the agent, unless you stop it with kill -9.")
            )
        return told

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Create a join token and show it once. The token is not stored, so no redirect follows."""
        self.object = self.find()
        text = renew_credential(self.viewer, self.object, now=timezone.now())
        command = join_command(text, name=self.object.name)
        shown = {"token": text, "command": command, "guessed": guessed_address(), "is_renewed": True}
        shown |= {"is_closed": is_closed_to_others()}
        context = self.get_context_data(**shown)
        return self.response_class(self.request, ["web/panel/join_token.html"], context)


class TerminatePage(AgentAction):
    """Removes an agent permanently."""

    title = _l("Remove permanently")
    submit_label = _l("Remove permanently")
    question_text = _l("Remove %(object)s permanently?")

    def consequences(self) -> list[str]:
        return [
            _(
                "Sessions there end with agent-terminated (%(kernels)s), and their resources are freed. "
                "Batch sessions that asked for it wait for another agent."
            )
            % {"kernels": self.kernels},
            _("If the machine is still running, shut it down: its sessions would continue untracked."),
            _("It stays in the history. It can rejoin only with a join token created for it."),
        ]

    def typed_word(self) -> str:
        """Return the agent's name, which the user must type."""
        return self.object.name

    def act(self) -> str:
        """Remove the agent; return the message with the number of ended sessions."""
        number = retire_agent(self.viewer, self.object, now=timezone.now())
        text = ngettext(
            "%(agent)s was removed; %(number)s session ended.",
            "%(agent)s was removed; %(number)s sessions ended.",
            number,
        )
        return text % {"agent": self.object, "number": number}
