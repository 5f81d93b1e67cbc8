"""Domains."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import Domain, User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import change_domain, create_domain, delete_domain
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.named import policy_named, with_rows
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.versions import check_seen, tag_of
from backendai.portal.api.people.bodies import DomainBody, DomainChange, NewDomainRequest


class DomainList(ListAPIView[Domain]):
    """The domains visible to the user; creates one."""

    queryset = Domain.objects.none()
    serializer_class = DomainBody
    pagination_class = ByName
    filter_backends = []
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[Domain]:
        """Return the visible domains."""
        return _shown_domains(user_of(self.request))

    @extend_schema(request=NewDomainRequest, responses={201: DomainBody})
    def post(self, request: Request) -> Response:
        """Create a domain; superadmins only."""
        body = NewDomainRequest(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = body.validated_data
        domain = create_domain(user_of(request), wishes["name"], policy=policy_named(wishes["policy"]))
        return Response(DomainBody(domain).data, status=status.HTTP_201_CREATED)


class DomainDetail(GenericAPIView[Domain]):
    """One domain."""

    serializer_class = DomainBody
    token_scopes = (Scope.ADMIN,)
    filter_backends: list[Any] = []

    def get(self, request: Request, domain_id: int) -> Response:
        """Return the domain; use ``ETag`` as ``If-Match`` of a change."""
        shown = _shown(request, domain_id)
        return Response(shown, headers={"ETag": tag_of(shown)})

    @extend_schema(request=DomainChange, responses=DomainBody)
    def patch(self, request: Request, domain_id: int) -> Response:
        """Change the given fields. 412 if ``If-Match`` does not name the current version."""
        domain = get_object_or_404(_shown_domains(user_of(request)), pk=domain_id)
        body = DomainChange(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = with_rows(user_of(request), body.validated_data)
        with transaction.atomic():
            get_object_or_404(Domain.objects.select_for_update(), pk=domain.pk)
            check_seen(request, _shown(request, domain_id))
            change_domain(user_of(request), domain, wishes)
        shown = _shown(request, domain_id)
        return Response(shown, headers={"ETag": tag_of(shown)})

    @extend_schema(responses={204: None})
    def delete(self, request: Request, domain_id: int) -> Response:
        """Delete an unused domain; 409 with the counts of objects that belong to it."""
        delete_domain(user_of(request), get_object_or_404(_shown_domains(user_of(request)), pk=domain_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _shown_domains(viewer: User) -> QuerySet[Domain]:
    domains: QuerySet[Domain] = Domain.objects.visible_to(viewer).select_related("policy")
    return domains


def _shown(request: Request, domain_id: int) -> dict[str, Any]:
    return dict(DomainBody(get_object_or_404(_shown_domains(user_of(request)), pk=domain_id)).data)
