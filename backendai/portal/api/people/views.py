"""People: lists, creates, changes, deactivates and purges them."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Prefetch
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import Membership, User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import NewUser, change_user, create_user, set_password, set_user_active
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.portal.api.frame.named import domain_named, policy_named, project_named, with_rows
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.people.bodies import NewUserRequest, PasswordRequest, PurgeRequest, UserBody, UserChange
from backendai.portal.api.people.filters import UserFilter


class ByEmail(NewestFirst):
    """Pages as of ``NewestFirst``, ordered by e-mail address."""

    ordering = "email"


class UserView(ResourceView[User]):
    """The base of the views of users. A response takes three queries for any number of them."""

    queryset = User.objects.select_related("domain", "policy").prefetch_related(
        Prefetch("memberships", Membership.objects.select_related("project").order_by("project__name"))
    )
    serializer_class = UserBody
    lookup_url_kwarg = "user_id"
    token_scopes = (Scope.ADMIN,)


class UserList(UserView, ListAPIView[User]):
    """The visible users; creates one."""

    pagination_class = ByEmail
    filterset_class = UserFilter

    @extend_schema(request=NewUserRequest, responses={201: UserBody})
    def post(self, request: Request) -> Response:
        """Create a user."""
        wishes = values_of(NewUserRequest, request.data)
        domain = domain_named(self.user, wishes.pop("domain"))
        projects = [project_named(self.user, one, domain=domain, field="projects") for one in wishes["projects"]]
        new = NewUser(**wishes | {"domain": domain, "policy": policy_named(wishes["policy"]), "projects": projects})
        made = create_user(self.user, new)
        return self.answer(get_object_or_404(self.get_queryset(), pk=made.pk), status.HTTP_201_CREATED)


class UserDetail(VersionedView, UserView):
    """One user."""

    versioned = (User, "pk")

    def get(self, request: Request, user_id: UUID) -> Response:
        """Return the user; use ``ETag`` as ``If-Match`` of a change."""
        return self.answer(self.get_object())

    @extend_schema(request=UserChange, responses=UserBody)
    def patch(self, request: Request, user_id: UUID) -> Response:
        """Change the given fields. 412 if ``If-Match`` does not name the current version."""
        user, values = self.get_object(), with_rows(self.user, values_of(UserChange, request.data))
        change_user(self.user, user, values, now=timezone.now())
        return self.answer(self.get_object())


class UserActivation(UserView):
    """Activating a user."""

    active = True

    @extend_schema(request=None, responses=UserBody)
    def post(self, request: Request, user_id: UUID) -> Response:
        """Change the state of the account; repeating the request changes nothing."""
        set_user_active(self.user, self.get_object(), self.active, now=timezone.now())
        return self.answer(self.get_object())


class UserDeactivation(UserActivation):
    """Deactivating a user: all their sign-ins and tokens end, and their sessions continue."""

    active = False


class UserPassword(UserView):
    """A user's password, set by an administrator."""

    @extend_schema(request=PasswordRequest, responses={204: None})
    def post(self, request: Request, user_id: UUID) -> Response:
        """Set the password; all sign-ins of the user end."""
        user = self.get_object()
        set_password(self.user, user, now=timezone.now(), **values_of(PasswordRequest, request.data))
        return Response(status=status.HTTP_204_NO_CONTENT)


class UserPurge(UserView):
    """Deleting all personal data of an account permanently."""

    @extend_schema(request=PurgeRequest, responses={204: None})
    def post(self, request: Request, user_id: UUID) -> Response:
        """Purge the account; 409 with the counts while it has live sessions."""
        user = self.get_object()
        purge_user(self.user, user, typed=values_of(PurgeRequest, request.data)["email"], now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)
