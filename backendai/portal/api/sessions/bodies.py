"""Bodies of requests and answers about compute sessions. Their names are a contract: add, never rename."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.base.core.messages import values_of
from backendai.domain.compute.models.sessions import ComputeSession, Kernel, SchedulingRecord, SessionMount
from backendai.domain.compute.services.life.ending_many import EndedMany, Refusal
from backendai.domain.planning.steps import shown_steps
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import MomentField, StrictSerializer
from backendai.portal.api.sessions.launch_bodies import LONGEST_NAME_READ, NAME_RULE

_Amounts = {"type": "object", "additionalProperties": {"type": "string"}}
_Words = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}
_Values = {"type": "object", "additionalProperties": {}}


class RenameRequest(StrictSerializer):
    """The new name of a session."""

    name = serializers.CharField(max_length=LONGEST_NAME_READ, help_text=NAME_RULE)


class PriorityRequest(StrictSerializer):
    """The new priority of a session."""

    priority = serializers.IntegerField(help_text="0 to 100, within the policies of the owner.")


class EndTimeRequest(StrictSerializer):
    """The new end of a running session."""

    ends_at = MomentField(
        allow_null=True, help_text="Up to ten years ahead; the owner within the policies. null: no time limit."
    )


class TerminateRequest(StrictSerializer):
    """Whether to end a session's programs at once."""

    force = serializers.BooleanField(default=False)


class TerminateManyRequest(TerminateRequest):
    """The sessions to terminate, and whether to force it."""

    sessions = serializers.ListField(child=serializers.UUIDField(), allow_empty=False, help_text="At most 100.")


class RefusalBody(serializers.Serializer[Refusal]):
    """A session that was not terminated, with the reason.

    Without a name the session is not visible or does not exist.
    """

    id = serializers.UUIDField()
    name = serializers.CharField()
    code = serializers.CharField()
    message = serializers.CharField()


class EndedManyBody(serializers.Serializer[EndedMany]):
    """IDs of cancelled, terminating and forced sessions, and the refused ones."""

    cancelled = serializers.ListField(child=serializers.UUIDField(), source="ended.cancelled")
    terminating = serializers.ListField(child=serializers.UUIDField(), source="ended.terminating")
    forced = serializers.ListField(child=serializers.UUIDField(), source="ended.forced")
    refused = RefusalBody(many=True)


class KernelBody(Answer[Kernel]):
    """One kernel of a session."""

    agent = serializers.CharField(source="agent_name", read_only=True)
    status = serializers.CharField()
    status_message = serializers.CharField(source="reason_text")
    status_values = serializers.SerializerMethodField(help_text="The values in the message, by name.")
    resources = serializers.SerializerMethodField()
    image = serializers.CharField(
        source="own_image", read_only=True, allow_null=True, help_text="Null: the session's image."
    )
    devices = serializers.SerializerMethodField()

    class Meta:
        model = Kernel
        fields = [
            "id", "role", "index", "rank", "hostname", "agent", "container_id", "status", "status_reason",
            "status_message", "status_values", "exit_code", "progress", "fetched_bytes", "image_bytes", "resources",
            "image", "devices", "on_failure", "after", "is_held", "ready", "restarts", "is_unconfirmed", "created_at",
            "started_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Values)
    def get_status_values(self, kernel: Kernel) -> dict[str, Any]:
        """Return the values in the kernel's status message."""
        return values_of(kernel.reason_text)

    @extend_schema_field(_Amounts)
    def get_resources(self, kernel: Kernel) -> dict[str, str]:
        """Return the slots of the kernel as decimal strings."""
        return dict(kernel.slots)

    @extend_schema_field({"type": "object", "additionalProperties": _Amounts})
    def get_devices(self, kernel: Kernel) -> dict[str, dict[str, str]]:
        """Return the allocated amounts by slot and device."""
        return dict(kernel.devices)


class MountedBody(serializers.Serializer[SessionMount]):
    """A folder that the session mounts."""

    folder = serializers.UUIDField(source="folder_id", allow_null=True)
    name = serializers.CharField(source="folder_name")
    path = serializers.CharField(source="sub_path")
    target = serializers.CharField()
    rights = serializers.CharField()
    role = serializers.CharField(help_text="The role whose kernels mount it; empty: all.")
    is_automatic = serializers.BooleanField()


class SessionBody(Answer[ComputeSession]):
    """A compute session with its kernels."""

    type = serializers.CharField(source="session_type")
    status = serializers.CharField()
    status_message = serializers.CharField(source="reason_text")
    status_values = serializers.SerializerMethodField(help_text="The values in the message, by name.")
    result = serializers.CharField()
    owner = serializers.EmailField(source="owner_email", read_only=True)
    launched_by = serializers.EmailField(
        source="launched_by_email",
        read_only=True,
        allow_null=True,
        help_text="The administrator who launched it for its owner; null: the owner did.",
    )
    project = serializers.CharField(source="project_name", read_only=True)
    resource_group = serializers.CharField(source="resource_group_name", read_only=True)
    image = serializers.CharField(source="image_name", read_only=True)
    resources = serializers.SerializerMethodField(help_text="Amounts of each kernel; if they differ, of the main one.")
    environ = serializers.SerializerMethodField(help_text="Variables, for the owner only; otherwise null.")
    depends_on = serializers.SerializerMethodField(help_text="IDs of the sessions that must end first.")
    depends_when = serializers.CharField()
    template = serializers.SerializerMethodField(help_text="scope/name@version; empty: none.")
    parameters = serializers.SerializerMethodField(
        help_text="Values for the template, without secrets, for the owner only; otherwise null."
    )
    kernels = KernelBody(many=True, source="shown_kernels")
    mounts = MountedBody(many=True, source="shown_mounts")

    class Meta:
        model = ComputeSession
        fields = [
            "id", "name", "type", "status", "status_reason", "status_message", "status_values", "status_data", "result",
            "owner", "launched_by", "project", "resource_group", "image", "resources", "shm_bytes", "cluster_size",
            "cluster_mode", "environ", "preopen_ports", "startup_command", "starts_at", "batch_timeout",
            "designated_agents", "placement", "launch_id", "priority", "retry_on_agent_loss", "queue_position",
            "attempts", "retries", "version", "created_at", "scheduled_at", "started_at", "ends_at", "terminating_at",
            "ended_at", "depends_on", "depends_when", "template", "parameters", "kernels", "mounts", "start_in",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Values)
    def get_status_values(self, session: ComputeSession) -> dict[str, Any]:
        """Return the values in the session's status message."""
        return values_of(session.reason_text)

    @extend_schema_field(_Amounts)
    def get_resources(self, session: ComputeSession) -> dict[str, str]:
        """Return the slots of each kernel as decimal strings."""
        return dict(session.slots)

    @extend_schema_field(_Words)
    def get_environ(self, session: ComputeSession) -> dict[str, Any] | None:
        """Return the environment variables to the owner, None to others, as they can contain keys."""
        return dict(session.environ) if self._is_own(session) else None

    @extend_schema_field({"type": "array", "items": {"type": "string", "format": "uuid"}})
    def get_depends_on(self, session: Any) -> list[str]:
        """Return the IDs of the sessions that must end first."""
        return [str(other.pk) for other in session.shown_depends_on]

    def get_template(self, session: ComputeSession) -> str:
        """Return the version of the template from which the session was launched, or an empty text."""
        return str(session.spec.get("template", ""))

    @extend_schema_field({"type": "object", "additionalProperties": {}, "nullable": True})
    def get_parameters(self, session: ComputeSession) -> dict[str, Any] | None:
        """Return the parameters of the template to the owner, None to others, as they can be private."""
        return dict(session.spec.get("parameters", {})) if self._is_own(session) else None

    def _is_own(self, session: ComputeSession) -> bool:
        return bool(session.owner_id == self.context["request"].user.pk)


class StepBody(serializers.Serializer[Any]):
    """One step within a row of the scheduling history."""

    step = serializers.CharField()
    result = serializers.CharField()
    message = serializers.CharField()
    values = serializers.DictField(help_text="The values in the message, by name.")
    error_code = serializers.CharField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()


class RecordBody(Answer[SchedulingRecord]):
    """One row of the scheduling history."""

    id = serializers.UUIDField(source="uid", read_only=True)
    phase = serializers.CharField()
    result = serializers.CharField()
    values = serializers.SerializerMethodField(help_text="The values in the message, by name.")
    sub_steps = serializers.SerializerMethodField()

    class Meta:
        model = SchedulingRecord
        fields = [
            "id", "phase", "result", "from_status", "to_status", "attempts", "error_code", "message", "values",
            "sub_steps", "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Values)
    def get_values(self, record: SchedulingRecord) -> dict[str, Any]:
        """Return the values in the row's message."""
        return values_of(record.message)

    @extend_schema_field(StepBody(many=True))
    def get_sub_steps(self, record: SchedulingRecord) -> list[dict[str, Any]]:
        """Return the steps of the row, each with all fields."""
        return shown_steps(record)
