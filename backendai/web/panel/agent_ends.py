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
from backendai.web.panel.agent_deeds import AgentDeed
from backendai.wire.capabilities import Capability


class RevokePage(AgentDeed):
    """Turn a machine away."""

    title = _l("Revoke the credential")
    submit_label = _l("Revoke")

    def question(self) -> str:
        """Return what is asked."""
        return _("Refuse %(object)s from now on?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
        grace = describe_duration(self.object.resource_group.agent_lost_grace)
        return [
            _("All its calls are refused; within a minute it counts as lost."),
            _(
                "What it runs goes on unseen (%(kernels)s). After %(grace)s those sessions end with agent-lost, and "
                "their slots stay taken until the machine is back or is given up."
            )
            % {"kernels": self.kernels, "grace": grace},
            _("It comes back only with a join token made for it: Renew the credential."),
        ]

    def act(self) -> str:
        """Turn it away."""
        revoke_credential(self.viewer, self.object, now=timezone.now())
        return _("%(object)s is refused from now on.") % {"object": self.object}


class RenewPage(AgentDeed):
    """Let a machine in with a new credential."""

    title = _l("Renew the credential")
    submit_label = _l("Make a join token")
    is_dangerous = False

    def question(self) -> str:
        """Return what is asked."""
        return _("Make a join token for %(object)s?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
        told = [
            _("It works once, within a day, and for this machine alone."),
            _("The credential that the machine has now is refused from the moment it joins again."),
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


class TerminatePage(AgentDeed):
    """Give a machine up for good."""

    title = _l("Declare it gone")
    submit_label = _l("It is gone for good")

    def question(self) -> str:
        """Return what is asked."""
        return _("Declare %(object)s gone for good?") % {"object": self.object}

    def consequences(self) -> list[str]:
        """Return what will happen."""
        return [
            _(
                "What ran there ends with agent-terminated (%(kernels)s), and what it held is free. Batch sessions "
                "that asked for it wait for another agent."
            )
            % {"kernels": self.kernels},
            _("If the machine is alive after all, what runs on it goes on unseen: switch it off."),
            _("Its row stays for the history. It comes back only with a join token made for it."),
        ]

    def typed_word(self) -> str:
        """Return the machine's name."""
        return self.object.name

    def act(self) -> str:
        """Give it up."""
        number = retire_agent(self.viewer, self.object, now=timezone.now())
        text = ngettext(
            "%(agent)s is gone for good; that ended %(number)s session.",
            "%(agent)s is gone for good; that ended %(number)s sessions.",
            number,
        )
        return text % {"agent": self.object, "number": number}
