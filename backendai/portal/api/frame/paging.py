"""Cursor paging: stable while rows are added, with equally fast pages."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import BasePagination, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class NewestFirst(CursorPagination):
    """Pages of 50 (``?page_size=`` up to 100), newest first unless the view says otherwise."""

    page_size = 50
    max_page_size = 100
    page_size_query_param = "page_size"
    ordering: str | tuple[str, ...] = "-created_at"

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: APIView) -> tuple[str, ...]:
        """Return the order of the rows, made unique by the primary key."""
        ordering = tuple(super().get_ordering(request, queryset, view))
        key = "-pk" if ordering[0].startswith("-") else "pk"
        return (*ordering, key)

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> Any:
        """Return one page of rows. Raises NotFound for an invalid cursor."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValidationError, ValueError) as error:
            raise NotFound(self.invalid_cursor_message) from error


class ByName(NewestFirst):
    """Pages as of ``NewestFirst``, ordered by name."""

    ordering = "name"


class ByRank(NewestFirst):
    """Pages as of ``NewestFirst``, in the order that an administrator has set."""

    ordering = ("rank", "name")


class OnePage(BasePagination):
    """The only page of a list that is never long, in the form of the others."""

    def get_paginated_response_schema(self, schema: Any) -> Any:
        """Return the schema of a page."""
        return NewestFirst().get_paginated_response_schema(schema)


def only_page(rows: Any) -> Response:
    """Return all rows as the only page."""
    return Response({"next": None, "previous": None, "results": rows})
