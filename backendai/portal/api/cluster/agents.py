"""Agents and their join tokens, for superadmins."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.scopes import Scope
from backendai.domain.cluster.agents import (
    change_agent,
    join_command,
    make_join_token,
    renew_credential,
    revoke_credential,
    revoke_join_token,
)
from backendai.domain.cluster.models import Agent, JoinToken, ResourceGroup
from backendai.domain.compute.services.life.draining import cancel_drain, move_agent, start_drain
from backendai.domain.compute.services.life.retiring import retire_agent
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.portal.api.frame.authentication import superadmin_of, user_of
from backendai.portal.api.frame.paging import ByName, NewestFirst
from backendai.portal.api.frame.parsing import MomentField, StrictSerializer
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
    agent = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)

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


class AgentList(ListAPIView[Agent]):
    """The agents, for superadmins; empty for others."""

    token_scopes = (Scope.ADMIN,)
    queryset = Agent.objects.none()
    serializer_class = AgentBody
    pagination_class = ByName

    def get_queryset(self) -> QuerySet[Agent]:
        """Return the visible agents."""
        return Agent.objects.visible_to(user_of(self.request)).select_related("resource_group")

    def get_serializer_context(self) -> dict[str, Any]:
        """Return the context of the rows: the amounts that each agent's kernels hold."""
        superadmin = getattr(self.request.user, "is_superadmin", False)
        return {**super().get_serializer_context(), "occupied": occupied_by_agent() if superadmin else {}}


class AgentView(GenericAPIView[Agent]):
    """Base of views for one visible agent."""

    token_scopes = (Scope.ADMIN,)
    queryset = Agent.objects.none()
    serializer_class = AgentBody
    filter_backends: list[Any] = []

    def find(self) -> Agent:
        """Return the agent in the address. Raises 404 if it is not visible."""
        visible = Agent.objects.visible_to(user_of(self.request)).select_related("resource_group")
        return get_object_or_404(visible, pk=self.kwargs["agent_id"])

    def answer(self) -> Response:
        """Return the agent's current values."""
        agent = self.find()
        return Response(AgentBody(agent, context={"occupied": occupied_by_agent([agent.pk])}).data)


class AgentDetail(AgentView):
    """One agent, for superadmins."""

    def get(self, request: Request, agent_id: UUID) -> Response:
        """Return the agent."""
        return self.answer()

    @extend_schema(request=AgentChange, responses=AgentBody)
    def patch(self, request: Request, agent_id: UUID) -> Response:
        """Change the agent's settings, or move it to another group; 409 if its kernels prevent that."""
        agent = self.find()
        body = AgentChange(data=request.data)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        group, force = values.pop("resource_group", None), values.pop("force", False)
        if group is not None:
            move_agent(user_of(request), agent, _group(group), force=force)
        change_agent(user_of(request), agent, values)
        return self.answer()


class AgentDrain(AgentView):
    """Draining an agent."""

    @extend_schema(request=DrainRequest, responses=AgentBody)
    def post(self, request: Request, agent_id: UUID) -> Response:
        """Start draining: no new sessions start, and running ones continue, until ``ends_at`` if given."""
        agent = self.find()
        body = DrainRequest(data=request.data)
        body.is_valid(raise_exception=True)
        start_drain(user_of(request), agent, now=timezone.now(), ends_at=body.validated_data["ends_at"])
        return self.answer()

    @extend_schema(request=None, responses=AgentBody)
    def delete(self, request: Request, agent_id: UUID) -> Response:
        """Cancel the drain; 409 if the agent is not draining."""
        cancel_drain(user_of(request), self.find())
        return self.answer()


class AgentEnd(AgentView):
    """Removing an agent permanently."""

    @extend_schema(request=None, responses=AgentBody)
    def post(self, request: Request, agent_id: UUID) -> Response:
        """Remove the agent, which ends its sessions. 409 while it is reachable and runs sessions."""
        retire_agent(user_of(request), self.find(), now=timezone.now())
        return self.answer()


class AgentCredential(AgentView):
    """The credential of an agent."""

    @extend_schema(request=None, responses={201: NewJoinTokenBody})
    def post(self, request: Request, agent_id: UUID) -> Response:
        """Create a join token with which only this agent gets a new credential. It is valid once, within a day."""
        agent = self.find()
        return _new_token(renew_credential(user_of(request), agent, now=timezone.now()), name=agent.name)

    @extend_schema(request=None, responses=AgentBody)
    def delete(self, request: Request, agent_id: UUID) -> Response:
        """Revoke the credential: the agent is rejected and becomes unreachable."""
        revoke_credential(user_of(request), self.find(), now=timezone.now())
        return self.answer()


class JoinTokenList(ListAPIView[JoinToken]):
    """Join tokens, for superadmins; creates one."""

    token_scopes = (Scope.ADMIN,)
    queryset = JoinToken.objects.none()
    serializer_class = JoinTokenBody
    pagination_class = NewestFirst

    def get_queryset(self) -> QuerySet[JoinToken]:
        """Return the visible tokens."""
        return JoinToken.objects.visible_to(user_of(self.request)).select_related("resource_group", "agent")

    @extend_schema(request=JoinTokenRequest, responses={201: NewJoinTokenBody})
    def post(self, request: Request) -> Response:
        """Create a token; its text is only in this response."""
        actor = superadmin_of(request)
        body = JoinTokenRequest(data=request.data)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        group = _group(values.pop("resource_group"))
        text = make_join_token(actor, group, now=timezone.now(), **values)
        return _new_token(text, name_prefix=values.get("name_prefix", ""))


class JoinTokenDetail(GenericAPIView[JoinToken]):
    """One join token."""

    token_scopes = (Scope.ADMIN,)
    serializer_class = JoinTokenBody

    @extend_schema(responses={204: None})
    def delete(self, request: Request, join_token_id: int) -> Response:
        """Revoke the token; agents that joined with it stay."""
        revoke_join_token(user_of(request), join_token_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _group(name: str) -> ResourceGroup:
    found = ResourceGroup.objects.filter(name=name).first()
    if found is None:
        raise UserError(
            "Resource group {name} not found.", name=repr(name), field="resource_group", code="unknown-resource-group"
        )
    return found


def _new_token(text: str, **named: str) -> Response:
    answer = {"token": text, "command": join_command(text, **named)}
    return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})
