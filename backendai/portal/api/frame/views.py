"""What the REST views of a resource share."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import status
from rest_framework.generics import GenericAPIView
from rest_framework.response import Response

from backendai.domain.accounts.models import User
from backendai.portal.api.frame.authentication import user_of

M = TypeVar("M", bound=Model)


class ResourceView(GenericAPIView[M]):
    """The base of the views of one resource, which share a subclass with its ``queryset`` and ``serializer_class``.

    ``get_object`` returns the row in the address (``lookup_url_kwarg``), and raises 404 for one that the user may not
    see. A view of rows that belong to another overrides ``visible``.
    """

    @property
    def user(self) -> User:
        """The user of the request."""
        return user_of(self.request)

    def get_queryset(self) -> QuerySet[M]:
        """Return the rows of ``queryset`` that the user may see."""
        rows = super().get_queryset()
        return rows if getattr(self, "swagger_fake_view", False) else self.visible(rows)

    def visible(self, rows: Any) -> QuerySet[M]:
        """Return those of the rows that the user may see."""
        found: QuerySet[M] = rows.visible_to(self.user)
        return found

    def answer(self, row: Any, code: int = status.HTTP_200_OK) -> Response:
        """Return a row as the response."""
        return Response(self.get_serializer(row).data, code)


class PartView(ResourceView[M]):
    """The base of the views of rows that belong to a row of another resource, which the address names first."""

    owner_view: ClassVar[type[ResourceView[Any]]]
    owner_field: ClassVar[str]

    def owner(self) -> Any:
        """Return the other row. Raises 404 if the user may not see it."""
        rows: Any = self.owner_view.queryset
        return get_object_or_404(rows.visible_to(self.user), pk=self.kwargs[self.owner_view.lookup_url_kwarg])

    def visible(self, rows: Any) -> QuerySet[M]:
        """Return the rows that belong to it."""
        found: QuerySet[M] = rows.filter(**{self.owner_field: self.owner()}).order_by()
        return found
