"""Resource policies, for superadmins. Others see none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.policies import delete_policy, write_policy
from backendai.domain.cluster.slot_types import check_known
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.people.policy_bodies import PolicyBody, PolicyChange, PolicyRequest


class PolicyList(ListAPIView[ResourcePolicy]):
    """All policies; creates one."""

    queryset = ResourcePolicy.objects.none()
    serializer_class = PolicyBody
    pagination_class = ByName
    token_scopes = (Scope.ADMIN,)

    def get_queryset(self) -> QuerySet[ResourcePolicy]:
        """Return the visible policies with the number of their holders."""
        return _visible(self.request)

    @extend_schema(request=PolicyRequest, responses={201: PolicyBody})
    def post(self, request: Request) -> Response:
        """Create a policy."""
        if not user_of(request).is_superadmin:
            raise Http404
        body = PolicyRequest(data=request.data)
        body.is_valid(raise_exception=True)
        _check_slots(body.validated_data)
        made = write_policy(user_of(request).pk, ResourcePolicy(), body.validated_data)
        shown = get_object_or_404(_visible(request), pk=made.pk)
        return Response(self.get_serializer(shown).data, status=status.HTTP_201_CREATED)


class PolicyDetail(GenericAPIView[ResourcePolicy]):
    """One policy."""

    queryset = ResourcePolicy.objects.none()
    serializer_class = PolicyBody
    token_scopes = (Scope.ADMIN,)
    filter_backends: list[Any] = []

    @extend_schema(responses=PolicyBody)
    def get(self, request: Request, pk: int) -> Response:
        """Return the policy."""
        return Response(self.get_serializer(get_object_or_404(_visible(request), pk=pk)).data)

    @extend_schema(request=PolicyChange, responses=PolicyBody)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields. They apply from the next pass; running sessions continue."""
        policy = get_object_or_404(_visible(request), pk=pk)
        body = PolicyChange(data=request.data)
        body.is_valid(raise_exception=True)
        _check_slots(body.validated_data, policy)
        write_policy(user_of(request).pk, policy, body.validated_data)
        return Response(self.get_serializer(get_object_or_404(_visible(request), pk=pk)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete the policy; 409 ``policy-in-use`` with the counts while it is assigned."""
        delete_policy(user_of(request).pk, get_object_or_404(_visible(request), pk=pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _check_slots(values: Mapping[str, Any], policy: ResourcePolicy | None = None) -> None:
    """Refuse slots that no agent has offered and the policy does not have yet."""
    for field in ("slots", "max_pending_slots"):
        if isinstance(amounts := values.get(field), Mapping):
            check_known(amounts, field=field, kept=getattr(policy, field, ()))


def _visible(request: Request) -> QuerySet[ResourcePolicy]:
    return ResourcePolicy.objects.visible_to(user_of(request)).with_holders().prefetch_related("default_for")
