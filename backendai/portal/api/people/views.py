"""People: lists, creates, changes, deactivates and purges them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import Membership, User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import NewUser, change_user, create_user, set_password, set_user_active
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.filters import RequestedFilters
from backendai.portal.api.frame.named import domain_named, policy_named, project_named, with_rows
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.versions import check_seen, tag_of
from backendai.portal.api.people.bodies import NewUserRequest, PasswordRequest, PurgeRequest, UserBody, UserChange
from backendai.portal.api.people.filters import UserFilter


class ByEmail(NewestFirst):
    """Pages as of ``NewestFirst``, ordered by e-mail address."""

    ordering = "email"


class UserList(ListAPIView[User]):
    """The visible users; creates one."""

    queryset = User.objects.none()
    serializer_class = UserBody
    pagination_class = ByEmail
    filterset_class = UserFilter
    filter_backends = [RequestedFilters]
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[User]:
        """Return the visible people."""
        return shown_people(user_of(self.request))

    @extend_schema(request=NewUserRequest, responses={201: UserBody})
    def post(self, request: Request) -> Response:
        """Create a user."""
        body = NewUserRequest(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = body.validated_data
        domain = domain_named(user_of(request), wishes.pop("domain"))
        projects = [project_named(user_of(request), one, domain=domain, field="projects") for one in wishes["projects"]]
        new = NewUser(**wishes | {"domain": domain, "policy": policy_named(wishes["policy"]), "projects": projects})
        user = create_user(user_of(request), new)
        return Response(_shown(request, user.pk), status=status.HTTP_201_CREATED)


class UserDetail(GenericAPIView[User]):
    """One user."""

    serializer_class = UserBody
    token_scopes = (Scope.ADMIN,)
    filter_backends: list[Any] = []

    def get(self, request: Request, user_id: UUID) -> Response:
        """Return the user; use ``ETag`` as ``If-Match`` of a change."""
        shown = _shown(request, user_id)
        return Response(shown, headers={"ETag": tag_of(shown)})

    @extend_schema(request=UserChange, responses=UserBody)
    def patch(self, request: Request, user_id: UUID) -> Response:
        """Change the given fields. 412 if ``If-Match`` does not name the current version."""
        user = _person(request, user_id)
        body = UserChange(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = with_rows(user_of(request), body.validated_data)
        with transaction.atomic():
            get_object_or_404(User.objects.select_for_update(), pk=user.pk)
            check_seen(request, _shown(request, user_id))
            change_user(user_of(request), user, wishes, now=timezone.now())
        shown = _shown(request, user_id)
        return Response(shown, headers={"ETag": tag_of(shown)})


class UserActivation(GenericAPIView[User]):
    """Activating a user."""

    serializer_class = UserBody
    token_scopes = (Scope.ADMIN,)
    active = True

    @extend_schema(request=None, responses=UserBody)
    def post(self, request: Request, user_id: UUID) -> Response:
        """Change the state of the account; repeating the request changes nothing."""
        set_user_active(user_of(request), _person(request, user_id), self.active, now=timezone.now())
        return Response(_shown(request, user_id))


class UserDeactivation(UserActivation):
    """Deactivating a user: all their sign-ins and tokens end, and their sessions continue."""

    active = False


class UserPassword(GenericAPIView[User]):
    """A user's password, set by an administrator."""

    serializer_class = UserBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=PasswordRequest, responses={204: None})
    def post(self, request: Request, user_id: UUID) -> Response:
        """Set the password; all sign-ins of the user end."""
        user = _person(request, user_id)
        body = PasswordRequest(data=request.data)
        body.is_valid(raise_exception=True)
        set_password(user_of(request), user, now=timezone.now(), **body.validated_data)
        return Response(status=status.HTTP_204_NO_CONTENT)


class UserPurge(GenericAPIView[User]):
    """Deleting all personal data of an account permanently."""

    serializer_class = UserBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=PurgeRequest, responses={204: None})
    def post(self, request: Request, user_id: UUID) -> Response:
        """Purge the account; 409 with the counts while it has live sessions."""
        user = _person(request, user_id)
        body = PurgeRequest(data=request.data)
        body.is_valid(raise_exception=True)
        purge_user(user_of(request), user, typed=body.validated_data["email"], now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


def shown_people(viewer: User) -> QuerySet[User]:
    """Return the visible users with everything that a response contains; three queries for any number."""
    memberships = Membership.objects.select_related("project").order_by("project__name")
    people: QuerySet[User] = User.objects.visible_to(viewer).select_related("domain", "policy")
    return people.prefetch_related(Prefetch("memberships", memberships))


def _person(request: Request, user_id: UUID) -> User:
    return get_object_or_404(User.objects.visible_to(user_of(request)).select_related("domain", "policy"), pk=user_id)


def _shown(request: Request, user_id: UUID) -> dict[str, Any]:
    return dict(UserBody(get_object_or_404(shown_people(user_of(request)), pk=user_id)).data)
