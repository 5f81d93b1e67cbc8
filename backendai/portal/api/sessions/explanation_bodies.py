"""Bodies of explanations: why a session waits, which sessions are ahead, and what would start it now."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.base.core.messages import values_of
from backendai.domain.planning.explain import Explanation, Verdict
from backendai.scheduler.explaining.suggest import Suggestion
from backendai.scheduler.plan import Reason, Step

_Amounts = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}


class ReasonBody(serializers.Serializer[Reason]):
    """A reason with a stable code, a sentence and its numbers."""

    code = serializers.CharField()
    message = serializers.CharField()
    details = serializers.DictField()
    never = serializers.BooleanField(help_text="Waiting does not help.")
    until = serializers.DateTimeField(allow_null=True)


class ConsideredBody(serializers.Serializer[Step]):
    """One consideration of the scheduler, in its order."""

    step = serializers.CharField()
    passed = serializers.BooleanField()
    error_code = serializers.CharField(source="code")
    message = serializers.CharField()
    values = serializers.SerializerMethodField(help_text="The values in the message, by name.")

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_values(self, step: Step) -> dict[str, Any]:
        """Return the values of its message."""
        return values_of(step.message)


class AheadBody(serializers.Serializer[Any]):
    """A session that is scheduled first."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    priority = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class SuggestionBody(serializers.Serializer[Suggestion]):
    """A change with which the session would start now."""

    resource_group = serializers.CharField(source="group")
    resources = serializers.SerializerMethodField(help_text="Amounts of each kernel; null: unchanged.")
    agents = serializers.ListField(child=serializers.CharField())
    message = serializers.CharField()

    @extend_schema_field(_Amounts)
    def get_resources(self, suggestion: Suggestion) -> dict[str, str] | None:
        """Return the amounts as decimal strings."""
        return None if suggestion.resources is None else suggestion.resources.to_json()


class ExplanationBody(serializers.Serializer[Explanation]):
    """What the next pass would do with a session, and why."""

    as_of = serializers.DateTimeField(source="now")
    resource_group = serializers.CharField(source="group")
    verdict = serializers.ChoiceField(choices=[(verdict.value, verdict.value) for verdict in Verdict])
    message = serializers.CharField()
    reason = ReasonBody(allow_null=True)
    position = serializers.IntegerField(allow_null=True, help_text="From 1, among the pending sessions of the group.")
    waiting = serializers.IntegerField()
    ahead = AheadBody(many=True, help_text="The visible ones of the first twenty sessions in front.")
    ahead_total = serializers.IntegerField()
    agents = serializers.ListField(child=serializers.CharField(), help_text="The agents on which it starts.")
    steps = ConsideredBody(many=True)
    suggestions = SuggestionBody(many=True)
