"""Invitations to projects."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.invitation_links import link_of, mail_link
from backendai.domain.accounts.models import Invitation
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import Invitee, invite, revoke_invitation
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.filters import RequestedFilters
from backendai.portal.api.frame.named import policy_named, project_named
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.people.bodies import InvitationBody, InvitationRequest, NewInvitationBody
from backendai.portal.api.people.filters import InvitationFilter


class InvitationList(ListAPIView[Invitation]):
    """Invitations to projects whose members the user manages; creates one."""

    queryset = Invitation.objects.none()
    serializer_class = InvitationBody
    pagination_class = NewestFirst
    filterset_class = InvitationFilter
    filter_backends = [RequestedFilters]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Invitation]:
        """Return the visible invitations."""
        rows = Invitation.objects.visible_to(user_of(self.request))
        shown: QuerySet[Invitation] = rows.select_related("project", "policy", "invited_by")
        return shown

    @extend_schema(request=InvitationRequest, responses={201: NewInvitationBody})
    def post(self, request: Request) -> Response:
        """Invite a person; the link is only in this response."""
        body = InvitationRequest(data=request.data)
        body.is_valid(raise_exception=True)
        wishes, now = body.validated_data, timezone.now()
        project = project_named(user_of(request), wishes["project"])
        invitee = Invitee(wishes["email"], wishes["full_name"], wishes["role"], policy_named(wishes["policy"]))
        row, text = invite(user_of(request), project, invitee, now=now, valid_for=timedelta(days=wishes["days"]))
        answer = dict(InvitationBody(row).data) | {"link": link_of(text), "mailed": mail_link(row, text)}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class InvitationDetail(GenericAPIView[Invitation]):
    """One invitation."""

    serializer_class = InvitationBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, invitation_id: UUID) -> Response:
        """Revoke the invitation: its link stops working."""
        rows = Invitation.objects.visible_to(user_of(request)).select_related("project")
        revoke_invitation(user_of(request), get_object_or_404(rows, pk=invitation_id), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)
