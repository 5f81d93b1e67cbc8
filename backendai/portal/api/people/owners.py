"""The people for whom an administrator may launch sessions, with their projects and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.acting import owner_named, projects_to_act_in
from backendai.domain.accounts.models import Project, User
from backendai.domain.cluster.models import ResourceGroup
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import BoundedSerializer, values_of
from backendai.portal.api.other_bodies import ProjectBody


@dataclass(frozen=True, slots=True)
class _Owner:
    """A person, with the projects and groups in which sessions may be launched for them."""

    email: str
    full_name: str
    projects: list[Project]
    resource_groups: list[str]


class OwnerQuery(BoundedSerializer):
    """The e-mail address of the user."""

    email = serializers.EmailField(help_text="The complete address; upper and lower case are equal.")


class OwnerBody(serializers.Serializer[Any]):
    """A user for whom the requesting user can launch sessions."""

    email = serializers.EmailField()
    full_name = serializers.CharField()
    projects = ProjectBody(many=True, help_text="Projects for launches.")
    resource_groups = serializers.ListField(
        child=serializers.CharField(), help_text="Groups that are available to the user."
    )


class OwnerLookup(GenericAPIView[Any]):
    """Finding a user to launch a session for; for administrators."""

    serializer_class = OwnerBody

    @extend_schema(parameters=[OwnerQuery], responses=OwnerBody)
    def get(self, request: Request) -> Response:
        """Return the user with their projects and groups; 404 for a user for whom the requesting user cannot launch."""
        actor = user_of(request)
        if actor.role == User.Role.USER:
            raise Http404
        values = values_of(OwnerQuery, request.query_params)
        owner = owner_named(actor, values["email"])
        groups = ResourceGroup.objects.visible_to(owner).filter(is_active=True).order_by("name")
        found = _Owner(
            owner.email,
            owner.full_name,
            list(projects_to_act_in(actor, owner).select_related("domain").order_by("name")),
            list(groups.values_list("name", flat=True)),
        )
        return Response(self.get_serializer(found).data)
