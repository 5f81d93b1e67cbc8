"""Filters of the lists of people, projects and invitations."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet
from django.utils import timezone

from backendai.domain.accounts.models import Invitation, Membership, Project, User


class UserFilter(filters.FilterSet):
    """Filters users; ``role`` may be given several times."""

    search = filters.CharFilter(method="filter_search", max_length=200, help_text="In address or name.")
    email = filters.CharFilter(lookup_expr="iexact", max_length=254)
    role = filters.MultipleChoiceFilter(choices=User.Role.choices)
    active = filters.BooleanFilter(field_name="is_active")
    domain = filters.CharFilter(field_name="domain__name", max_length=64)
    project = filters.UUIDFilter(method="filter_project", help_text="The ID of a project of theirs.")

    class Meta:
        model = User
        fields: list[str] = []

    def filter_search(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the people whose address or name contains the text."""
        return queryset.filter(Q(email__icontains=value) | Q(full_name__icontains=value))

    def filter_project(self, queryset: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        """Return the members of the project."""
        return queryset.filter(pk__in=Membership.objects.filter(project=value).order_by().values("user"))


class ProjectFilter(filters.FilterSet):
    """Filters projects."""

    search = filters.CharFilter(field_name="name", lookup_expr="icontains", max_length=64)
    name = filters.CharFilter(max_length=64)
    domain = filters.CharFilter(field_name="domain__name", max_length=64)
    active = filters.BooleanFilter(field_name="is_active")

    class Meta:
        model = Project
        fields: list[str] = []


class InvitationFilter(filters.FilterSet):
    """Filters invitations."""

    email = filters.CharFilter(lookup_expr="iexact", max_length=254)
    project = filters.UUIDFilter(field_name="project")
    state = filters.ChoiceFilter(choices=Invitation.State.choices, method="filter_state")

    class Meta:
        model = Invitation
        fields: list[str] = []

    def filter_state(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return the invitations in this state."""
        return queryset & Invitation.objects.in_state(value, timezone.now())
