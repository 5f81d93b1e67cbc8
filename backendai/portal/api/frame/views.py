"""What the REST views of a resource share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from django.db import transaction
from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import User
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.named import with_rows
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import check_seen, tag_of

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


class TaggedView(ResourceView[M]):
    """The base of the views of a resource whose ``ETag`` is the ``If-Match`` of a change."""

    is_versioned = True
    shown_rows: QuerySet[M]  # with everything that a response contains

    def shown(self, pk: Any) -> dict[str, Any]:
        """Return the response about the row with this key. Raises 404 if the user may not see it."""
        return dict(self.get_serializer(get_object_or_404(self.visible(self.shown_rows.all()), pk=pk)).data)

    def tagged(self) -> Response:
        """Return the row in the address with its tag."""
        shown = self.shown(self.kwargs[self.lookup_url_kwarg])
        return Response(shown, headers={"ETag": tag_of(shown)})

    def change(
        self, request: Request, kind: type[serializers.Serializer[Any]], write: Callable[[M, Mapping[str, Any]], Any]
    ) -> Response:
        """Change the row by ``write`` while it is locked. Raises 412 if the request names another version of it."""
        row = self.get_object()
        values = with_rows(self.user, values_of(kind, request.data))
        with transaction.atomic():
            get_object_or_404(type(row)._default_manager.select_for_update(), pk=row.pk)
            check_seen(request, self.shown(row.pk))
            write(row, values)
        return self.tagged()
