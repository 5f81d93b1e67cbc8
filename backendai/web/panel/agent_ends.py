"""How one machine is turned away, let in again, or given up for good."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.cluster.agents import guessed_address, join_command, renew_credential, revoke_credential
from backendai.cluster.capabilities import capabilities_of
from backendai.cluster.models import Agent
from backendai.compute.services.retiring import retire_agent
from backendai.core.durations import describe_duration
from backendai.texts.translation import gettext as _
from backendai.texts.translation import ngettext
from backendai.web.panel.agent_actions import AgentAction
from backendai.wire.capabilities import Capability


class RevokePage(AgentAction):
    """Turn a machine away."""

    title = _l("Revoke the credential")
    submit_label = _l("Revoke")

    def question(self) -> str:
        """Return what is asked."""
        return _("Revoke the credential of %(object)s?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
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
        """Turn it away."""
        revoke_credential(self.viewer, self.object, now=timezone.now())
        return _("Access of %(object)s is revoked.") % {"object": self.object}


class RenewPage(AgentAction):
    """Let a machine in with a new credential."""

    title = _l("Renew the credential")
    submit_label = _l("Create a join token")
    is_dangerous = False

    def question(self) -> str:
        """Return what is asked."""
        return _("Create a join token for %(object)s?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
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
        """Show the token, this once: it is not stored, so the page is not a redirect."""
        self.object = get_object_or_404(Agent.objects.select_related("resource_group"), pk=self.kwargs["pk"])
        text = renew_credential(self.viewer, self.object, now=timezone.now())
        return self.shown_once(text)

    def shown_once(self, text: str) -> HttpResponse:
        """Return the page with the token's text."""
        command = join_command(text, name=self.object.name)
        shown = {"token": text, "command": command, "guessed": guessed_address(), "is_renewed": True}
        context = self.get_context_data(**shown)
        return self.response_class(self.request, ["web/panel/join_token.html"], context)


class TerminatePage(AgentAction):
    """Give a machine up for good."""

    title = _l("Remove permanently")
    submit_label = _l("Remove permanently")

    def question(self) -> str:
        """Return what is asked."""
        return _("Remove %(object)s permanently?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
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
        """Return the machine's name."""
        return self.object.name

    def act(self) -> str:
        """Give it up."""
        number = retire_agent(self.viewer, self.object, now=timezone.now())
        text = ngettext(
            "%(agent)s was removed; %(number)s session ended.",
            "%(agent)s was removed; %(number)s sessions ended.",
            number,
        )
        return text % {"agent": self.object, "number": number}
