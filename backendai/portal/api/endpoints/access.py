"""Tokens and scaling rules of inference endpoints."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.serving.models import MOST_REPLICAS, AutoScalingRule, EndpointToken
from backendai.domain.serving.rule_kinds import metric_choices
from backendai.domain.serving.services.endpoints import set_rules
from backendai.domain.serving.services.tokens import create_token, revoke_token
from backendai.portal.api.endpoints.bodies import CreatedTokenBody, EndpointTokenBody, EndpointTokenRequest
from backendai.portal.api.endpoints.views import EndpointPartView
from backendai.portal.api.frame.paging import NewestFirst, OnePage, only_page
from backendai.portal.api.frame.parsing import StrictSerializer, values_of


class RuleRequest(StrictSerializer):
    """A scaling rule that applies in addition to the target."""

    metric = serializers.ChoiceField(choices=metric_choices())
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


class EndpointTokens(EndpointPartView[EndpointToken], ListAPIView[EndpointToken]):
    """The tokens of an endpoint; creates one."""

    queryset = EndpointToken.objects.all()
    serializer_class = EndpointTokenBody
    pagination_class = NewestFirst

    @extend_schema(request=EndpointTokenRequest, responses={201: CreatedTokenBody})
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Create a token; its text is only in this response."""
        endpoint, values = self.owner(), values_of(EndpointTokenRequest, request.data)
        token, text = create_token(endpoint, self.user, **values)
        said = {**EndpointTokenBody(token).data, "token": text}
        return Response(said, status=status.HTTP_201_CREATED)


class EndpointTokenDetail(EndpointPartView[EndpointToken]):
    """One token of an endpoint."""

    queryset = EndpointToken.objects.all()
    serializer_class = EndpointTokenBody
    lookup_url_kwarg = "endpoint_token_id"

    def delete(self, request: Request, endpoint_id: UUID, endpoint_token_id: UUID) -> Response:
        """Revoke the token; app proxies reject it within two seconds."""
        revoke_token(self.get_object(), self.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


class EndpointRules(EndpointPartView[AutoScalingRule]):
    """The scaling rules of an endpoint."""

    queryset = AutoScalingRule.objects.all()
    serializer_class = RuleBody
    pagination_class = OnePage

    @extend_schema(responses=RuleBody(many=True))
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """Return all scaling rules, at most 20."""
        return only_page(RuleBody(self.owner().rules.all(), many=True).data)

    @extend_schema(request=RulesRequest, responses=RuleBody(many=True))
    def put(self, request: Request, endpoint_id: UUID) -> Response:
        """Replace all scaling rules."""
        endpoint, values = self.owner(), values_of(RulesRequest, request.data)
        set_rules(endpoint, self.user, [AutoScalingRule(**one) for one in values["rules"]])
        return only_page(RuleBody(endpoint.rules.all(), many=True).data)
