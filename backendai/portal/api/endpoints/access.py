"""Tokens and scaling rules of inference endpoints."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.serving.models import MOST_REPLICAS, AutoScalingRule, Endpoint, EndpointToken, Metric
from backendai.domain.serving.services.endpoints import set_rules
from backendai.domain.serving.services.tokens import create_token, revoke_token
from backendai.portal.api.endpoints.bodies import CreatedTokenBody, EndpointTokenBody, EndpointTokenRequest
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.parsing import StrictSerializer


class RuleRequest(StrictSerializer):
    """A scaling rule that applies in addition to the target."""

    metric = serializers.ChoiceField(choices=Metric.choices)
    query = serializers.CharField(
        max_length=1000,
        required=False,
        allow_blank=True,
        default="",
        help_text="A Prometheus query, for the metric prometheus only.",
    )
    up_over = serializers.FloatField(required=False, allow_null=True, default=None)
    down_under = serializers.FloatField(required=False, allow_null=True, default=None)
    step = serializers.IntegerField(min_value=1, max_value=MOST_REPLICAS, default=1)
    is_active = serializers.BooleanField(default=True)


class RulesRequest(StrictSerializer):
    """All rules of an endpoint."""

    rules = serializers.ListField(child=RuleRequest(), max_length=20)


class RuleBody(serializers.ModelSerializer[AutoScalingRule]):
    """A step rule."""

    class Meta:
        model = AutoScalingRule
        fields = [
            "metric",
            "query",
            "value",
            "value_at",
            "trouble",
            "up_over",
            "down_under",
            "step",
            "is_active",
            "created_at",
        ]
        read_only_fields = fields


class EndpointTokens(ListAPIView[EndpointToken]):
    """The tokens of an endpoint; creates one."""

    queryset = EndpointToken.objects.none()
    serializer_class = EndpointTokenBody
    pagination_class = NewestFirst
    filter_backends: list[Any] = []
    token_scopes = (Scope.SESSIONS,)

    def get_queryset(self) -> QuerySet[EndpointToken]:
        """Return the tokens of a visible endpoint."""
        if getattr(self, "swagger_fake_view", False):
            return EndpointToken.objects.none()
        return _endpoint(self.request, self.kwargs["endpoint_id"]).tokens.order_by()

    @extend_schema(request=EndpointTokenRequest, responses={201: CreatedTokenBody})
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Create a token; its text is only in this response."""
        endpoint = _endpoint(request, endpoint_id)
        body = EndpointTokenRequest(data=request.data)
        body.is_valid(raise_exception=True)
        token, text = create_token(endpoint, user_of(request), **body.validated_data)
        said = {**EndpointTokenBody(token).data, "token": text}
        return Response(said, status=status.HTTP_201_CREATED)


class EndpointTokenDetail(GenericAPIView[EndpointToken]):
    """One token of an endpoint."""

    serializer_class = EndpointTokenBody
    token_scopes = (Scope.SESSIONS,)
    filter_backends: list[Any] = []

    @extend_schema(responses={204: None})
    def delete(self, request: Request, endpoint_id: UUID, endpoint_token_id: UUID) -> Response:
        """Revoke the token; app proxies reject it within two seconds."""
        endpoint = _endpoint(request, endpoint_id)
        revoke_token(get_object_or_404(EndpointToken, endpoint=endpoint, pk=endpoint_token_id), user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


class EndpointRules(GenericAPIView[AutoScalingRule]):
    """The scaling rules of an endpoint."""

    serializer_class = RuleBody
    token_scopes = (Scope.SESSIONS,)
    filter_backends: list[Any] = []

    @extend_schema(responses=RuleBody(many=True))
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return all scaling rules, at most 20."""
        return Response(RuleBody(_endpoint(request, endpoint_id).rules.all(), many=True).data)

    @extend_schema(request=RulesRequest, responses=RuleBody(many=True))
    def put(self, request: Request, endpoint_id: UUID) -> Response:
        """Replace all scaling rules."""
        endpoint = _endpoint(request, endpoint_id)
        body = RulesRequest(data=request.data)
        body.is_valid(raise_exception=True)
        set_rules(endpoint, user_of(request), [AutoScalingRule(**one) for one in body.validated_data["rules"]])
        return Response(RuleBody(endpoint.rules.all(), many=True).data)


def _endpoint(request: Request, endpoint_id: UUID) -> Endpoint:
    endpoint: Endpoint = get_object_or_404(Endpoint.objects.visible_to(user_of(request)).live(), pk=endpoint_id)
    return endpoint
