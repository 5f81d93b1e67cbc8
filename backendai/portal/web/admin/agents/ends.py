"""Revokes or renews the credential of an agent, or removes the agent permanently."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.durations import describe_duration
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.base.wire.capabilities import Capability
from backendai.domain.cluster.agents import (
    guessed_address,
    is_closed_to_others,
    join_command,
    renew_credential,
    revoke_credential,
)
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.services.life.retiring import retire_agent
from backendai.portal.web.admin.agents.actions import AgentAction


class RevokePage(AgentAction):
    """Revokes the credential of an agent."""

    title = _l("Revoke the credential")
    submit_label = _l("Revoke credential")

    def question(self) -> str:
        return _("Revoke the credential of %(object)s?") % {"object": self.object}

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
    is_dangerous = False

    def question(self) -> str:
        return _("Create a join token for %(object)s?") % {"object": self.object}

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
        """Create a join token and show it once. The token is not stored, so the answer is no redirect."""
        self.object = get_object_or_404(Agent.objects.select_related("resource_group"), pk=self.kwargs["pk"])
        text = renew_credential(self.viewer, self.object, now=timezone.now())
        return self.shown_once(text)

    def shown_once(self, text: str) -> HttpResponse:
        """Return the page with the token's text."""
        command = join_command(text, name=self.object.name)
        shown = {"token": text, "command": command, "guessed": guessed_address(), "is_renewed": True}
        shown |= {"is_closed": is_closed_to_others()}
        context = self.get_context_data(**shown)
        return self.response_class(self.request, ["web/panel/join_token.html"], context)


class TerminatePage(AgentAction):
    """Removes an agent permanently."""

    title = _l("Remove permanently")
    submit_label = _l("Remove permanently")

    def question(self) -> str:
        return _("Remove %(object)s permanently?") % {"object": self.object}

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
