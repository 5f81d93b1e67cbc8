"""Domains."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import Domain
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import change_domain, create_domain, delete_domain
from backendai.portal.api.frame.named import policy_named, with_rows
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.people.bodies import DomainBody, DomainChange, NewDomainRequest


class DomainView(ResourceView[Domain]):
    """The base of the views of domains."""

    queryset = Domain.objects.select_related("policy")
    serializer_class = DomainBody
    lookup_url_kwarg = "domain_id"
    token_scopes = (Scope.ADMIN,)


class DomainList(DomainView, ListAPIView[Domain]):
    """The domains visible to the user; creates one."""

    pagination_class = ByName

    @extend_schema(request=NewDomainRequest, responses={201: DomainBody})
    def post(self, request: Request) -> Response:
        """Create a domain; superadmins only."""
        values = values_of(NewDomainRequest, request.data)
        domain = create_domain(self.user, values["name"], policy=policy_named(values["policy"]))
        return self.answer(domain, status.HTTP_201_CREATED)


class DomainDetail(VersionedView, DomainView):
    """One domain."""

    versioned = (Domain, "pk")

    def get(self, request: Request, domain_id: int) -> Response:
        """Return the domain; use ``ETag`` as ``If-Match`` of a change."""
        return self.answer(self.get_object())

    @extend_schema(request=DomainChange, responses=DomainBody)
    def patch(self, request: Request, domain_id: int) -> Response:
        """Change the given fields. 412 if ``If-Match`` does not name the current version."""
        domain, values = self.get_object(), with_rows(self.user, values_of(DomainChange, request.data))
        return self.answer(change_domain(self.user, domain, values))

    def delete(self, request: Request, domain_id: int) -> Response:
        """Delete an unused domain; 409 with the counts of objects that belong to it."""
        delete_domain(self.user, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)
