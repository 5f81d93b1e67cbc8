"""Bodies of requests and answers about inference endpoints."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.domain.compute.status import ClusterMode
from backendai.domain.serving.models import MOST_REPLICAS, EndpointToken, Revision, ScalingRecord
from backendai.domain.serving.presentation import EndpointSummary
from backendai.domain.serving.reading import ObservedReplica
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec
from backendai.portal.api.frame.fields import DecimalAmounts
from backendai.portal.api.frame.parsing import AmountsField, MomentField, StrictSerializer
from backendai.portal.api.sessions.launch_request import MountsField
from backendai.scheduler.serving.health import Health

_Reason = {"type": "object", "properties": {
    "code": {"type": "string"}, "message": {"type": "string"}, "data": {"type": "object"},
    "until": {"type": "string", "format": "date-time", "nullable": True},
}}  # fmt: skip
_ORIGINS = "Origins of pages that may send requests, such as https://chat.example.org."
_WARM_UP = "Seconds in which a new replica comes to its full share of requests."
_AFFINITY = "Name of a header: requests with the same value keep to one replica."
_CANARY = "Per cent of requests that a new revision gets during an update; 0: as many as an old one."
_NAME_RULE = "1 to 40 small letters, digits and dashes."


class RevisionRequest(StrictSerializer):
    """Image, command and resources of each replica."""

    image = serializers.CharField(max_length=255)
    command = serializers.CharField(
        max_length=2**16, help_text="Starts the model server; the variable PORT has its port."
    )
    port = serializers.IntegerField(min_value=1, max_value=65535, default=8000)
    environ = serializers.DictField(child=serializers.CharField(allow_blank=True), default=dict)
    resources = AmountsField(default=dict)
    preset = serializers.CharField(max_length=64, default="", allow_blank=True)
    cluster_size = serializers.IntegerField(min_value=1, max_value=16, default=1)
    cluster_mode = serializers.ChoiceField(choices=ClusterMode.choices, default="single-node")
    probe_path = serializers.CharField(
        max_length=255, default="/health", allow_blank=True, help_text="Empty: only connect."
    )
    startup_timeout = serializers.FloatField(default=1200.0, help_text="Seconds.")
    drain_timeout = serializers.FloatField(default=600.0, help_text="Seconds.")
    model_name = serializers.CharField(
        max_length=128,
        default="",
        allow_blank=True,
        help_text="The model name at the common address; empty: the endpoint's name.",
    )
    mounts = MountsField(default=list, help_text="Folders with model files; mounted read-only.")

    def spec(self) -> RevisionSpec:
        """Return the requested revision."""
        return RevisionSpec(**self.validated_data)


class RevisionUpdate(RevisionRequest):
    """A new revision of an endpoint."""

    allow_gap = serializers.BooleanField(
        default=False, help_text="End an old replica before its successor serves, for groups without room."
    )

    def spec(self) -> RevisionSpec:
        """Return the requested revision."""
        return RevisionSpec(**{name: value for name, value in self.validated_data.items() if name != "allow_gap"})


class EndpointSettings(StrictSerializer):
    """Number of replicas, limits and access of an endpoint. In a change, omitted fields stay."""

    minimum = serializers.IntegerField(min_value=0, max_value=MOST_REPLICAS, default=1)
    maximum = serializers.IntegerField(min_value=1, max_value=MOST_REPLICAS, default=1)
    target = serializers.FloatField(default=4.0, help_text="Simultaneous requests per replica.")
    concurrency = serializers.IntegerField(min_value=0, max_value=100_000, default=0, help_text="0: unlimited.")
    queue = serializers.IntegerField(min_value=0, max_value=10_000, default=100, help_text="Most requests that wait.")
    queue_seconds = serializers.FloatField(min_value=0.1, max_value=600.0, default=30.0)
    hold_seconds = serializers.FloatField(
        min_value=0.1, max_value=600.0, default=60.0, help_text="How long a request waits for the first replica."
    )
    answer_timeout = serializers.FloatField(
        min_value=1.0, max_value=86400.0, default=600.0, help_text="Seconds of silence after which a request fails."
    )
    is_public = serializers.BooleanField(default=False)
    is_repeatable = serializers.BooleanField(default=False)
    asleep_after = serializers.FloatField(default=900.0, help_text="Seconds; applies if the minimum is 0.")
    max_surge = serializers.IntegerField(min_value=0, max_value=MOST_REPLICAS, default=1)
    max_unavailable = serializers.IntegerField(min_value=0, max_value=MOST_REPLICAS, default=0)
    origins = serializers.ListField(child=serializers.CharField(max_length=255), default=list, help_text=_ORIGINS)
    warm_up = serializers.FloatField(default=0.0, help_text=_WARM_UP)
    affinity = serializers.CharField(max_length=64, default="", allow_blank=True, help_text=_AFFINITY)
    canary = serializers.IntegerField(min_value=0, max_value=100, default=0, help_text=_CANARY)


class EndpointRequest(RevisionRequest, EndpointSettings):
    """A new endpoint with its first revision."""

    name = serializers.CharField(max_length=40, help_text=_NAME_RULE)
    project = serializers.CharField(max_length=64, default="", allow_blank=True)
    resource_group = serializers.CharField(max_length=64, default="", allow_blank=True)

    def endpoint_spec(self) -> EndpointSpec:
        """Return the requested endpoint."""
        of_revision = RevisionRequest().fields.keys()
        values = dict(self.validated_data)
        revision = RevisionSpec(**{name: values.pop(name) for name in of_revision})
        return EndpointSpec(revision=revision, **values)


class RollBackRequest(StrictSerializer):
    """The revision to return to."""

    revision = serializers.IntegerField(min_value=1)


class EndpointTokenRequest(StrictSerializer):
    """A new token."""

    name = serializers.CharField(max_length=64)
    expires_at = MomentField(required=False, allow_null=True, default=None)
    per_minute = serializers.IntegerField(min_value=0, max_value=10**6, default=0, help_text="0: unlimited.")
    opens_all = serializers.BooleanField(default=False, help_text="Valid for every endpoint of the owner.")


class EndpointTokenBody(serializers.ModelSerializer[EndpointToken]):
    """A token; its text is only in the response to its creation."""

    class Meta:
        model = EndpointToken
        fields = ["id", "name", "hint", "per_minute", "opens_all", "expires_at", "revoked_at", "created_at"]
        read_only_fields = fields


class CreatedTokenBody(EndpointTokenBody):
    """A token with its text, which is only shown once."""

    token = serializers.CharField(read_only=True)

    class Meta(EndpointTokenBody.Meta):
        fields = [*EndpointTokenBody.Meta.fields, "token"]
        read_only_fields = fields


class RevisionBody(serializers.ModelSerializer[Revision]):
    """A revision. Variables are left out because they can be secret."""

    image = serializers.CharField(source="image.name")
    number = serializers.IntegerField()
    resources = DecimalAmounts(source="slots", read_only=True)

    class Meta:
        model = Revision
        fields = [
            "number", "image", "command", "port", "resources", "cluster_size", "cluster_mode", "probe_path",
            "startup_timeout", "drain_timeout", "model_name", "mounts",
            "failed_starts", "retry_at", "last_error", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class ScalingRecordBody(serializers.ModelSerializer[ScalingRecord]):
    """A scaling decision."""

    numbers = serializers.SerializerMethodField()

    class Meta:
        model = ScalingRecord
        fields = ["code", "message", "numbers", "before", "after", "attempts", "created_at", "updated_at"]
        read_only_fields = fields

    @extend_schema_field({"type": "object"})
    def get_numbers(self, record: ScalingRecord) -> Any:
        """Return the numbers of the decision."""
        return record.data


class EndpointBody(serializers.Serializer[Any]):
    """An endpoint with its current state."""

    id = serializers.UUIDField(source="endpoint.pk")
    name = serializers.CharField(source="endpoint.name")
    url = serializers.CharField(help_text="The endpoint's own origin.")
    program_url = serializers.CharField(help_text="The address for programs, which every resolver knows.")
    owner = serializers.CharField(source="endpoint.owner.email")
    resource_group = serializers.CharField(source="endpoint.resource_group.name")
    wish = serializers.CharField(source="endpoint.wish")
    health = serializers.ChoiceField(choices=[(one.value, one.value) for one in Health])
    reason = serializers.SerializerMethodField()
    revision = serializers.IntegerField(source="view.current")
    next_revision = serializers.IntegerField(source="view.next", allow_null=True)
    ready = serializers.IntegerField()
    requests_per_second = serializers.FloatField(source="view.load.rate", help_text="Of the last half minute.")
    p95 = serializers.FloatField(
        source="view.load.p95", allow_null=True, help_text="Seconds to the whole answer, 95th percentile."
    )
    desired = serializers.IntegerField(source="endpoint.desired")
    minimum = serializers.IntegerField(source="endpoint.minimum")
    maximum = serializers.IntegerField(source="endpoint.maximum")
    target = serializers.FloatField(source="endpoint.target")
    concurrency = serializers.IntegerField(source="endpoint.concurrency")
    queue = serializers.IntegerField(source="endpoint.queue")
    queue_seconds = serializers.FloatField(source="endpoint.queue_seconds")
    hold_seconds = serializers.FloatField(source="endpoint.hold_seconds")
    answer_timeout = serializers.FloatField(source="endpoint.answer_timeout")
    is_public = serializers.BooleanField(source="endpoint.is_public")
    is_repeatable = serializers.BooleanField(source="endpoint.is_repeatable")
    max_surge = serializers.IntegerField(source="endpoint.max_surge")
    max_unavailable = serializers.IntegerField(source="endpoint.max_unavailable")
    origins = serializers.ListField(child=serializers.CharField(), source="endpoint.origins")
    warm_up = serializers.FloatField(source="endpoint.warm_up")
    affinity = serializers.CharField(source="endpoint.affinity")
    canary = serializers.IntegerField(source="endpoint.canary")
    asleep_after = serializers.SerializerMethodField()
    common_url = serializers.CharField(help_text="The common address of all endpoints, with OpenAI's protocol.")
    created_at = serializers.DateTimeField(source="endpoint.created_at")

    def get_asleep_after(self, shown: EndpointSummary) -> float:
        """Return the seconds without a request after which the last replica ends."""
        return shown.endpoint.asleep_after.total_seconds()

    @extend_schema_field(_Reason)
    def get_reason(self, shown: EndpointSummary) -> Any:
        """Return the reason of the endpoint's state."""
        return reason_body(shown.reason)


class ReplicaBody(serializers.Serializer[Any]):
    """A replica that has not ended."""

    number = serializers.IntegerField(source="replica.number")
    revision = serializers.IntegerField(source="replica.revision.number")
    state = serializers.CharField(source="replica.state")
    session = serializers.UUIDField(source="replica.session_id")
    session_status = serializers.CharField(source="replica.session.status")
    agents = serializers.SerializerMethodField()
    open = serializers.IntegerField()
    is_answering = serializers.SerializerMethodField()
    last_probe = serializers.CharField(source="message", help_text="The problem; empty: none.")
    reason = serializers.CharField(source="replica.reason")
    message = serializers.CharField(source="replica.message")
    created_at = serializers.DateTimeField(source="replica.created_at")
    ready_at = serializers.DateTimeField(source="replica.ready_at", allow_null=True)

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_agents(self, seen: ObservedReplica) -> list[str]:
        """Return the names of the agents that run the replica's kernels."""
        return [name for name, *_ in seen.agents]

    def get_is_answering(self, seen: ObservedReplica) -> bool:
        """Return whether the replica answers an app proxy."""
        return seen.has_answered


def reason_body(reason: Any) -> dict[str, Any]:
    """Return a reason as JSON values."""
    until = timezone.localtime(reason.until).isoformat() if reason.until else None
    return {"code": reason.code, "message": reason.message, "data": dict(reason.data), "until": until}
