"""Invitations to projects."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.invitation_links import link_of, mail_link
from backendai.domain.accounts.models import Invitation
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import Invitee, invite, revoke_invitation
from backendai.portal.api.frame.named import policy_named, project_named
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.people.bodies import InvitationBody, InvitationRequest, NewInvitationBody
from backendai.portal.api.people.filters import InvitationFilter


class InvitationView(ResourceView[Invitation]):
    """The base of the views of invitations."""

    queryset = Invitation.objects.select_related("project", "policy", "invited_by")
    serializer_class = InvitationBody
    lookup_url_kwarg = "invitation_id"
    token_scopes = (Scope.ADMIN,)


class InvitationList(InvitationView, ListAPIView[Invitation]):
    """Invitations to projects whose members the user manages; creates one."""

    pagination_class = NewestFirst
    filterset_class = InvitationFilter

    @extend_schema(request=InvitationRequest, responses={201: NewInvitationBody})
    def post(self, request: Request) -> Response:
        """Invite a person; the link is only in this response."""
        wishes, now = values_of(InvitationRequest, request.data), timezone.now()
        project = project_named(self.user, wishes["project"])
        invitee = Invitee(wishes["email"], wishes["full_name"], wishes["role"], policy_named(wishes["policy"]))
        row, text = invite(self.user, project, invitee, now=now, valid_for=timedelta(days=wishes["days"]))
        answer = dict(InvitationBody(row).data) | {"link": link_of(text), "mailed": mail_link(row, text)}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class InvitationDetail(InvitationView):
    """One invitation."""

    def delete(self, request: Request, invitation_id: UUID) -> Response:
        """Revoke the invitation: its link stops working."""
        revoke_invitation(self.user, self.get_object(), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)
