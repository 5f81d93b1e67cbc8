"""Bodies of the scaling rules of endpoints."""

from __future__ import annotations

from rest_framework import serializers

from backendai.domain.serving.models import MOST_REPLICAS, AutoScalingRule, Metric
from backendai.portal.api.frame.answers import Answer
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


class RuleBody(Answer[AutoScalingRule]):
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
