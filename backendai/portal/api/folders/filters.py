"""Filters of the list of folders."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import QuerySet

from backendai.domain.accounts.models import User
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import LIVE, FolderStatus, Usage

_STATUSES = [(str(status), FolderStatus(status).label) for status in sorted(LIVE)]


class FolderFilter(filters.FilterSet):
    """Filters folders; ``status`` may be given several times."""

    status = filters.MultipleChoiceFilter(choices=_STATUSES)
    name = filters.CharFilter(max_length=64)
    host = filters.CharFilter(field_name="host__name", max_length=32)
    owner = filters.CharFilter(field_name="user__email", lookup_expr="iexact", max_length=254)
    project = filters.UUIDFilter(field_name="project", help_text="ID.")
    usage = filters.ChoiceFilter(choices=Usage.choices)
    offered = filters.BooleanFilter(
        method="filter_offered", help_text="true: ready folders of the user, shared with them, or of their projects."
    )

    class Meta:
        model = Folder
        fields: list[str] = []

    def filter_offered(self, queryset: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        """Return the folders that the launcher offers to the user, or with False the other visible ones."""
        user = getattr(self.request, "user", None)
        if not isinstance(user, User):
            return queryset.none()
        offered = Folder.objects.offered_to(user).order_by().values("pk")
        return queryset.filter(pk__in=offered) if value else queryset.exclude(pk__in=offered)
