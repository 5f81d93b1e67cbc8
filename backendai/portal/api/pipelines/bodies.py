"""Bodies of requests and answers about runs of arrays and pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from backendai.domain.pipelines.documents.document import LARGEST
from backendai.domain.pipelines.elements import MOST_TASKS
from backendai.domain.pipelines.models import Run, State, Status, Step, Task
from backendai.domain.pipelines.presentation import Counts, fetched_values, status_of, with_zeros
from backendai.domain.pipelines.services.creating import RunSpec
from backendai.portal.api.frame.parsing import StrictSerializer
from backendai.scheduler.forecasts.ends import RunEnd


class RunRequest(StrictSerializer):
    """A run: its document as text (YAML or JSON), its document as data, or the name of a template."""

    text = serializers.CharField(required=False, trim_whitespace=False, max_length=LARGEST)
    document = serializers.DictField(required=False, child=serializers.JSONField(allow_null=True))
    template = serializers.CharField(
        required=False, max_length=128, help_text="A template of kind pipeline: scope/name, or scope/name@version."
    )
    parameters = serializers.DictField(child=serializers.JSONField(), default=dict)
    name = serializers.CharField(default="", allow_blank=True, max_length=40)

    def validate(self, attrs: Any) -> Any:
        """Return the values. Raises ValidationError unless exactly one of text, document and template is given."""
        if len({"text", "document", "template"} & set(attrs)) != 1:
            raise serializers.ValidationError({"document": "Write one of text, document and template."})
        return attrs

    def wish(self) -> RunSpec:
        """Return the requested run."""
        return RunSpec(**self.validated_data)


class RetryRequest(StrictSerializer):
    """The elements to retry: all failed ones, those of a step, or single ones of it."""

    step = serializers.CharField(default="", allow_blank=True, max_length=32)
    indexes = serializers.ListField(child=serializers.IntegerField(min_value=0), max_length=MOST_TASKS, required=False)


class AtOnceRequest(StrictSerializer):
    """The number of sessions that the run may have at once."""

    at_once = serializers.IntegerField(min_value=0, max_value=MOST_TASKS, help_text="0: no limit.")


class CountsBody(serializers.Serializer[Any]):
    """The numbers of elements, by state."""

    waiting = serializers.IntegerField()
    released = serializers.IntegerField(help_text="Launched elements: queued, running and terminating.")
    queued = serializers.IntegerField(help_text="Elements whose session waits for an agent.")
    running = serializers.IntegerField(help_text="Elements whose session has an agent.")
    terminating = serializers.IntegerField(help_text="Elements whose session is ending.")
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    skipped = serializers.IntegerField()
    cancelled = serializers.IntegerField()


class RunBriefBody(serializers.Serializer[Any]):
    """One run in a list."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.CharField(help_text="array or pipeline")
    status = serializers.CharField(help_text=", ".join(["WAITING", *Status.values]))
    message = serializers.CharField()
    owner = serializers.EmailField()
    project = serializers.CharField()
    size = serializers.IntegerField(help_text="Elements of all steps.")
    counts = CountsBody()
    waits = serializers.CharField(help_text="Why its first queued element waits; empty: none is queued.")
    at_once = serializers.IntegerField()
    on_failure = serializers.CharField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class RunStepBody(serializers.Serializer[Any]):
    """One step of a run."""

    name = serializers.CharField()
    size = serializers.IntegerField()
    counts = CountsBody()
    after = serializers.DictField(child=serializers.CharField())
    at_once = serializers.IntegerField()
    probe = serializers.IntegerField()
    give_up_after = serializers.IntegerField()
    message = serializers.CharField(help_text="Why no element can be launched now.")


class RunEndBody(serializers.Serializer[RunEnd]):
    """When a run is probably done, in 8 of 10 cases."""

    early = serializers.DateTimeField()
    late = serializers.DateTimeField()
    step = serializers.CharField(help_text="The step that decides.")


class BatchRunBody(RunBriefBody):
    """One run with its steps."""

    forecast = RunEndBody(allow_null=True, help_text="null: too few elements of a step that is left have ended.")
    parameters = serializers.DictField(child=serializers.JSONField())
    text = serializers.CharField(help_text="The document, without values of secrets and contents of files.")
    template = serializers.CharField(help_text="The version of the template that it is of; empty: none.")
    steps = RunStepBody(many=True)


class TaskBody(serializers.Serializer[Any]):
    """One element of a step."""

    step = serializers.CharField()
    index = serializers.IntegerField()
    values = serializers.DictField(child=serializers.CharField(), help_text="The element's own variables.")
    state = serializers.CharField(help_text=", ".join(State.values))
    attempt = serializers.IntegerField()
    code = serializers.CharField(help_text="The reason of its state.")
    cause = serializers.CharField(help_text="The step that caused its state.")
    session = serializers.UUIDField(allow_null=True, help_text="The session of the newest attempt.")
    retry_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class FailureBody(TaskBody):
    """An element that failed, with the end of its log."""

    reason = serializers.CharField()
    log = serializers.CharField(help_text="The last lines of the newest attempt's log, if stored.")


class WaitBody(serializers.Serializer[Any]):
    """One reason why an element waits."""

    code = serializers.CharField()
    message = serializers.CharField()


class RunWaitBody(serializers.Serializer[Any]):
    """Why an element waits, the nearest reason first."""

    step = serializers.CharField()
    index = serializers.IntegerField()
    state = serializers.CharField(help_text=", ".join(State.values))
    reasons = WaitBody(many=True)


class DifferenceBody(serializers.Serializer[Any]):
    """A value that differs between two runs."""

    where = serializers.CharField(help_text="The path in the document, or a step's image digest.")
    before = serializers.CharField(help_text="The value in the earlier run; empty: none.")
    now = serializers.CharField()


class RunComparisonBody(serializers.Serializer[Any]):
    """The differences from an earlier run."""

    before = serializers.UUIDField(
        allow_null=True, help_text="The earlier run; null: no earlier run of this name succeeded."
    )
    differences = DifferenceBody(many=True)


class RunPreviewStepBody(serializers.Serializer[Any]):
    """A step of a run that was only checked."""

    name = serializers.CharField()
    size = serializers.IntegerField()
    after = serializers.DictField(child=serializers.CharField())
    first_values = serializers.ListField(child=serializers.DictField(child=serializers.CharField()))


class RunPreviewBody(serializers.Serializer[Any]):
    """The result of checking a run."""

    kind = serializers.CharField()
    name = serializers.CharField()
    size = serializers.IntegerField()
    steps = RunPreviewStepBody(many=True)


def brief(run: Run, counts: Counts, waits: str) -> dict[str, Any]:
    """Return the values of a run in a list."""
    same = ("id", "name", "kind", "message", "size", "at_once", "on_failure", "created_at", "ended_at")
    found = {name: getattr(run, name) for name in same}
    told = {"status": status_of(run, counts), "counts": with_zeros(counts), "waits": waits}
    return found | told | {"owner": run.owner.email, "project": run.project.name}


def step_body(step: Step, counts: Counts) -> dict[str, Any]:
    """Return the values of a step. Its edges must be prefetched."""
    same = ("name", "size", "at_once", "probe", "give_up_after", "message")
    found = {name: getattr(step, name) for name in same}
    after = {edge.on.name: edge.when for edge in step.edges.all()}
    return found | {"counts": with_zeros(counts), "after": after}


def task_bodies(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Return the values of elements. Their steps must be prefetched."""
    same = ("index", "state", "attempt", "code", "cause", "retry_at", "ended_at")
    return [
        {name: getattr(task, name) for name in same}
        | {"step": task.step.name, "session": task.session_id, "values": fetched_values(task)}
        for task in tasks
    ]
