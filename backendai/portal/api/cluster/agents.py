"""Agents and their join tokens, for superadmins."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.cluster.agents import (
    change_agent,
    join_command,
    make_join_token,
    renew_credential,
    revoke_credential,
    revoke_join_token,
)
from backendai.domain.cluster.models import Agent, JoinToken
from backendai.domain.compute.services.life.draining import cancel_drain, move_agent, start_drain
from backendai.domain.compute.services.life.retiring import retire_agent
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.portal.api.frame.authentication import superadmin_of, user_of
from backendai.portal.api.frame.named import group_named
from backendai.portal.api.frame.paging import ByName, NewestFirst
from backendai.portal.api.frame.parsing import MomentField, StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.other_bodies import AgentBody


class AgentChange(StrictSerializer):
    """Changes of an agent; omitted fields stay unchanged."""

    schedulable = serializers.BooleanField(required=False)
    max_kernels = serializers.IntegerField(required=False, allow_null=True, help_text="Null: the group's setting.")
    resource_group = serializers.CharField(required=False, max_length=63)
    force = serializers.BooleanField(
        required=False,
        help_text="Also move an agent with kernels, which continue and count in the old group.",
    )


class DrainRequest(StrictSerializer):
    """The end of a drain."""

    ends_at = MomentField(default=None, allow_null=True, help_text="When the remaining sessions end; null: never.")


class JoinTokenRequest(StrictSerializer):
    """A new join token."""

    resource_group = serializers.CharField(max_length=63)
    # Blanks are no prefix: taken for an empty one, the token would be good for every name.
    name_prefix = serializers.CharField(max_length=63, default="", allow_blank=True, trim_whitespace=False)
    reusable = serializers.BooleanField(default=False)
    expires_at = MomentField(default=None, allow_null=True)


class JoinTokenBody(serializers.ModelSerializer[JoinToken]):
    """A join token without its text."""

    resource_group = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    agent = serializers.SlugRelatedField[Any](
        slug_field="name", read_only=True, allow_null=True, help_text="The only agent that may use it; null: any."
    )

    class Meta:
        model = JoinToken
        fields = [
            "id", "hint", "resource_group", "agent", "name_prefix", "is_reusable", "used_at", "expires_at",
            "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewJoinTokenBody(serializers.Serializer[Any]):
    """A join token with its text, which is only shown once, and the command for the new machine."""

    token = serializers.CharField()
    command = serializers.CharField()


class AgentView(ResourceView[Agent]):
    """The base of the views of agents."""

    token_scopes = (Scope.ADMIN,)
    queryset = Agent.objects.select_related("resource_group")
    serializer_class = AgentBody
    lookup_url_kwarg = "agent_id"

    def shown(self) -> Response:
        """Return the current values of the agent in the address."""
        agent = self.get_object()
        return Response(AgentBody(agent, context={"occupied": occupied_by_agent([agent.pk])}).data)


class AgentList(AgentView, ListAPIView[Agent]):
    """The agents, for superadmins; empty for others."""

    pagination_class = ByName

    def get_serializer_context(self) -> dict[str, Any]:
        """Return the context of the rows: the amounts that each agent's kernels hold."""
        superadmin = getattr(self.request.user, "is_superadmin", False)
        return {**super().get_serializer_context(), "occupied": occupied_by_agent() if superadmin else {}}


class AgentDetail(AgentView):
    """One agent, for superadmins."""

    def get(self, request: Request, agent_id: UUID) -> Response:
        """Return the agent."""
        return self.shown()

    @extend_schema(request=AgentChange, responses=AgentBody)
    def patch(self, request: Request, agent_id: UUID) -> Response:
        """Change the agent's settings, or move it to another group; 409 if its kernels prevent that."""
        agent = self.get_object()
        values = values_of(AgentChange, request.data)
        group, force = values.pop("resource_group", None), values.pop("force", False)
        if group is not None:
            move_agent(self.user, agent, group_named(group), force=force)
        change_agent(self.user, agent, values)
        return self.shown()


class AgentDrain(AgentView):
    """Draining an agent."""

    @extend_schema(request=DrainRequest, responses=AgentBody)
    def post(self, request: Request, agent_id: UUID) -> Response:
        """Start draining: no new sessions start, and running ones continue, until ``ends_at`` if given."""
        agent = self.get_object()
        values = values_of(DrainRequest, request.data)
        start_drain(self.user, agent, now=timezone.now(), ends_at=values["ends_at"])
        return self.shown()

    @extend_schema(request=None, responses={200: AgentBody})
    def delete(self, request: Request, agent_id: UUID) -> Response:
        """Cancel the drain; 409 if the agent is not draining."""
        cancel_drain(self.user, self.get_object())
        return self.shown()


class AgentEnd(AgentView):
    """Removing an agent permanently."""

    @extend_schema(request=None, responses=AgentBody)
    def post(self, request: Request, agent_id: UUID) -> Response:
        """Remove the agent, which ends its sessions. 409 while it is reachable and runs sessions."""
        retire_agent(self.user, self.get_object(), now=timezone.now())
        return self.shown()


class AgentCredential(AgentView):
    """The credential of an agent."""

    @extend_schema(request=None, responses={201: NewJoinTokenBody})
    def post(self, request: Request, agent_id: UUID) -> Response:
        """Create a join token with which only this agent gets a new credential. It is valid once, within a day."""
        agent = self.get_object()
        return _new_token(renew_credential(self.user, agent, now=timezone.now()), name=agent.name)

    @extend_schema(request=None, responses={200: AgentBody})
    def delete(self, request: Request, agent_id: UUID) -> Response:
        """Revoke the credential: the agent is rejected and becomes unreachable."""
        revoke_credential(self.user, self.get_object(), now=timezone.now())
        return self.shown()


class JoinTokenList(ResourceView[JoinToken], ListAPIView[JoinToken]):
    """Join tokens, for superadmins; creates one."""

    token_scopes = (Scope.ADMIN,)
    queryset = JoinToken.objects.select_related("resource_group", "agent")
    serializer_class = JoinTokenBody
    pagination_class = NewestFirst

    @extend_schema(request=JoinTokenRequest, responses={201: NewJoinTokenBody})
    def post(self, request: Request) -> Response:
        """Create a token; its text is only in this response."""
        actor = superadmin_of(request)
        values = values_of(JoinTokenRequest, request.data)
        group = group_named(values.pop("resource_group"))
        text = make_join_token(actor, group, now=timezone.now(), **values)
        return _new_token(text, name_prefix=values.get("name_prefix", ""))


class JoinTokenDetail(GenericAPIView[JoinToken]):
    """One join token."""

    token_scopes = (Scope.ADMIN,)
    serializer_class = JoinTokenBody

    def delete(self, request: Request, join_token_id: int) -> Response:
        """Revoke the token; agents that joined with it stay."""
        revoke_join_token(user_of(request), join_token_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _new_token(text: str, **named: str) -> Response:
    answer = {"token": text, "command": join_command(text, **named)}
    return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})
