"""Projects and their members."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
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
from backendai.portal.api.frame.named import domain_named, policy_named, with_rows
from backendai.portal.api.frame.paging import ByName, NewestFirst
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.people.bodies import (
    MemberBody,
    MemberChange,
    NewMemberRequest,
    NewProjectRequest,
    ProjectChange,
    ProjectDetail,
)
from backendai.portal.api.people.filters import ProjectFilter


class ProjectView(ResourceView[Project]):
    """The base of the views of projects."""

    queryset = Project.objects.select_related("domain__policy", "policy").annotate(
        number_of_members=number_of(Membership.objects.all(), "project")
    )
    serializer_class = ProjectDetail
    lookup_url_kwarg = "project_id"
    token_scopes = (Scope.ADMIN,)


class ProjectList(ProjectView, ListAPIView[Project]):
    """The visible projects; creates one."""

    pagination_class = ByName
    filterset_class = ProjectFilter

    @extend_schema(request=NewProjectRequest, responses={201: ProjectDetail})
    def post(self, request: Request) -> Response:
        """Create a project."""
        values = values_of(NewProjectRequest, request.data)
        domain = domain_named(self.user, values["domain"])
        if domain is None:
            raise UserError("Name the domain.", field="domain", code="unknown-domain")
        project = create_project(self.user, domain, values["name"], policy=policy_named(values["policy"]))
        return self.answer(get_object_or_404(self.get_queryset(), pk=project.pk), status.HTTP_201_CREATED)


class ProjectPage(VersionedView, ProjectView):
    """One project."""

    versioned = (Project, "pk")

    def get(self, request: Request, project_id: UUID) -> Response:
        """Return the project; use ``ETag`` as ``If-Match`` of a change."""
        return self.answer(self.get_object())

    @extend_schema(request=ProjectChange, responses=ProjectDetail)
    def patch(self, request: Request, project_id: UUID) -> Response:
        """Change the given fields. 412 if ``If-Match`` does not name the current version."""
        project, values = self.get_object(), with_rows(self.user, values_of(ProjectChange, request.data))
        change_project(self.user, project, values)
        return self.answer(self.get_object())

    def delete(self, request: Request, project_id: UUID) -> Response:
        """Delete a project that was never used; otherwise 409 with its uses."""
        delete_project(self.user, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class MemberView(ResourceView[Membership]):
    """The base of the views of a project's members, for those who manage them."""

    queryset = Membership.objects.select_related("user")
    serializer_class = MemberBody
    token_scopes = (Scope.ADMIN,)

    def visible(self, rows: Any) -> QuerySet[Membership]:
        """Return the memberships of the project."""
        members: QuerySet[Membership] = rows.filter(project=self.project()).order_by()
        return members

    def project(self) -> Project:
        """Return the project in the address; 404 unless the user manages its members."""
        managed = Project.objects.managed_by(self.user).select_related("domain")
        return get_object_or_404(managed, pk=self.kwargs["project_id"])


class MemberList(MemberView, ListAPIView[Membership]):
    """The members of a project, for those who manage them."""

    pagination_class = NewestFirst

    @extend_schema(request=NewMemberRequest, responses={201: MemberBody})
    def post(self, request: Request, project_id: UUID) -> Response:
        """Add a user of the project's domain."""
        project, values = self.project(), values_of(NewMemberRequest, request.data)
        return self.answer(
            add_member(self.user, project, values["email"], role=values["role"]), status.HTTP_201_CREATED
        )


class MemberPage(MemberView):
    """One member of a project."""

    @extend_schema(request=MemberChange, responses=MemberBody)
    def patch(self, request: Request, project_id: UUID, user_id: UUID) -> Response:
        """Change the member's role in the project."""
        project, user = self._both()
        values = values_of(MemberChange, request.data)
        return self.answer(set_member_role(self.user, project, user, values["role"]))

    def delete(self, request: Request, project_id: UUID, user_id: UUID) -> Response:
        """Remove the member from the project; their sessions continue."""
        remove_member(self.user, *self._both())
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _both(self) -> tuple[Project, User]:
        project = self.project()
        return project, get_object_or_404(User, memberships__project=project, pk=self.kwargs["user_id"])
