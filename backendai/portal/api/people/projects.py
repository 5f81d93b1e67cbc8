"""Projects and their members."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Membership, Project, User
from backendai.domain.accounts.querysets import number_of
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import (
    add_member,
    change_project,
    create_project,
    delete_project,
    remove_member,
    set_member_role,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.filters import RequestedFilters
from backendai.portal.api.frame.named import domain_named, policy_named, with_rows
from backendai.portal.api.frame.paging import ByName, NewestFirst
from backendai.portal.api.frame.versions import check_seen, tag_of
from backendai.portal.api.people.bodies import (
    MemberBody,
    MemberChange,
    NewMemberRequest,
    NewProjectRequest,
    ProjectChange,
    ProjectDetail,
)
from backendai.portal.api.people.filters import ProjectFilter


class ProjectList(ListAPIView[Project]):
    """The visible projects; creates one."""

    queryset = Project.objects.none()
    serializer_class = ProjectDetail
    pagination_class = ByName
    filterset_class = ProjectFilter
    filter_backends = [RequestedFilters]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Project]:
        """Return the visible projects."""
        return shown_projects(user_of(self.request))

    @extend_schema(request=NewProjectRequest, responses={201: ProjectDetail})
    def post(self, request: Request) -> Response:
        """Create a project."""
        body = NewProjectRequest(data=request.data)
        body.is_valid(raise_exception=True)
        domain = domain_named(user_of(request), body.validated_data["domain"])
        if domain is None:
            raise UserError("Name the domain.", field="domain", code="unknown-domain")
        policy = policy_named(body.validated_data["policy"])
        project = create_project(user_of(request), domain, body.validated_data["name"], policy=policy)
        return Response(_shown(request, project.pk), status=status.HTTP_201_CREATED)


class ProjectPage(GenericAPIView[Project]):
    """One project."""

    serializer_class = ProjectDetail
    token_scopes = (Scope.ADMIN,)
    filter_backends: list[Any] = []

    def get(self, request: Request, project_id: UUID) -> Response:
        """Return the project; use ``ETag`` as ``If-Match`` of a change."""
        shown = _shown(request, project_id)
        return Response(shown, headers={"ETag": tag_of(shown)})

    @extend_schema(request=ProjectChange, responses=ProjectDetail)
    def patch(self, request: Request, project_id: UUID) -> Response:
        """Change the given fields. 412 if ``If-Match`` does not name the current version."""
        project = _project(request, project_id)
        body = ProjectChange(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = with_rows(user_of(request), body.validated_data)
        with transaction.atomic():
            get_object_or_404(Project.objects.select_for_update(), pk=project.pk)
            check_seen(request, _shown(request, project_id))
            change_project(user_of(request), project, wishes)
        shown = _shown(request, project_id)
        return Response(shown, headers={"ETag": tag_of(shown)})

    @extend_schema(responses={204: None})
    def delete(self, request: Request, project_id: UUID) -> Response:
        """Delete a project that was never used; otherwise 409 with its uses."""
        delete_project(user_of(request), _project(request, project_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class MemberList(ListAPIView[Membership]):
    """The members of a project, for those who manage them."""

    queryset = Membership.objects.none()
    serializer_class = MemberBody
    pagination_class = NewestFirst
    filter_backends = []
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Membership]:
        """Return the memberships."""
        if getattr(self, "swagger_fake_view", False):
            return Membership.objects.none()
        project = _managed(self.request, self.kwargs["project_id"])
        members: QuerySet[Membership] = project.memberships.select_related("user").order_by()
        return members

    @extend_schema(request=NewMemberRequest, responses={201: MemberBody})
    def post(self, request: Request, project_id: UUID) -> Response:
        """Add a user of the project's domain."""
        project = _managed(request, project_id)
        body = NewMemberRequest(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = body.validated_data
        membership = add_member(user_of(request), project, wishes["email"], role=wishes["role"])
        return Response(MemberBody(membership).data, status=status.HTTP_201_CREATED)


class MemberPage(GenericAPIView[Membership]):
    """One member of a project."""

    serializer_class = MemberBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=MemberChange, responses=MemberBody)
    def patch(self, request: Request, project_id: UUID, user_id: UUID) -> Response:
        """Change the member's role in the project."""
        project, user = self._both(request, project_id, user_id)
        body = MemberChange(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(MemberBody(set_member_role(user_of(request), project, user, body.validated_data["role"])).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, project_id: UUID, user_id: UUID) -> Response:
        """Remove the member from the project; their sessions continue."""
        remove_member(user_of(request), *self._both(request, project_id, user_id))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _both(self, request: Request, project_id: UUID, user_id: UUID) -> tuple[Project, User]:
        project = _managed(request, project_id)
        return project, get_object_or_404(User, memberships__project=project, pk=user_id)


def shown_projects(viewer: User) -> QuerySet[Project]:
    """Return the visible projects with everything that a response contains, in one query."""
    projects: QuerySet[Project] = Project.objects.visible_to(viewer).select_related("domain", "policy")
    return projects.annotate(number_of_members=number_of(Membership.objects.all(), "project"))


def _project(request: Request, project_id: UUID) -> Project:
    rows = Project.objects.visible_to(user_of(request)).select_related("domain__policy", "policy")
    return get_object_or_404(rows, pk=project_id)


def _managed(request: Request, project_id: UUID) -> Project:
    return get_object_or_404(Project.objects.managed_by(user_of(request)).select_related("domain"), pk=project_id)


def _shown(request: Request, project_id: UUID) -> dict[str, Any]:
    return dict(ProjectDetail(get_object_or_404(shown_projects(user_of(request)), pk=project_id)).data)
