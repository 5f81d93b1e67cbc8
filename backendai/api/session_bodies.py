"""What a compute session looks like in requests and answers. These names are a contract: add, never rename."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.api.answers import Answer
from backendai.api.parsing import AmountsField, StrictSerializer
from backendai.compute.models import ComputeSession, Kernel, SchedulingRecord, SessionMount
from backendai.compute.services.ending_many import EndedMany, Refusal
from backendai.compute.spec import BroughtFile, MountWish, SessionSpec
from backendai.core.session_kinds import USUAL_KIND, launched_kinds
from backendai.planning.steps import shown_steps

_Amounts = {"type": "object", "additionalProperties": {"type": "string"}}
# The rule is the service's, which refuses a longer name in its own words; this only keeps the answer short.
LONGEST_NAME_READ = 200
NAME_RULE = "4 to 64 letters, digits, dots, dashes and underscores; begins and ends with a letter or a digit."
_Words = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}


class BroughtFileBody(StrictSerializer):
    """A text file for the home folder of the session."""

    path = serializers.CharField(max_length=255, trim_whitespace=False, help_text="Relative to the home folder.")
    content = serializers.CharField(max_length=2**18, allow_blank=True, trim_whitespace=False)


class MountBody(StrictSerializer):
    """A folder to mount."""

    folder = serializers.CharField(max_length=64, help_text="Its id or name.")
    path = serializers.CharField(
        max_length=1024, default="", allow_blank=True, trim_whitespace=False, help_text="A part of it; empty: all."
    )
    target = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="Where: absolute, or relative to /home/work. Empty: by its name there.",
    )
    rights = serializers.CharField(
        max_length=8, default="", allow_blank=True, help_text="view or edit; empty: all that you have."
    )


class LaunchRequest(StrictSerializer):
    """A launch; what is left out gets the default."""

    name = serializers.CharField(
        max_length=LONGEST_NAME_READ, default="", allow_blank=True, help_text=f"{NAME_RULE} Left out: generated."
    )
    type = serializers.ChoiceField(choices=launched_kinds(), default=USUAL_KIND.name)
    image = serializers.CharField(max_length=255)
    resources = AmountsField(default=dict)
    preset = serializers.CharField(max_length=64, default="", allow_blank=True)
    resource_group = serializers.CharField(max_length=63, default="", allow_blank=True)
    project = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="Its id or name.")
    shm = serializers.CharField(max_length=40, default="", allow_blank=True)
    environ = serializers.DictField(
        child=serializers.CharField(max_length=8192, allow_blank=True, trim_whitespace=False), default=dict
    )
    startup_command = serializers.CharField(max_length=2**16, default="", allow_blank=True, trim_whitespace=False)
    preopen_ports = serializers.ListField(
        child=serializers.IntegerField(), default=list, help_text="1024 to 65535; opened as apps, 20 at most."
    )
    starts_at = serializers.DateTimeField(default=None, allow_null=True)
    cluster_size = serializers.IntegerField(default=1)
    cluster_mode = serializers.CharField(
        max_length=16, default="single-node", help_text="single-node: all kernels on one agent; multi-node: on any."
    )
    priority = serializers.IntegerField(
        default=None, allow_null=True, help_text="0 to 100; usually 10. Policies may set a lower limit."
    )
    batch_timeout = serializers.DurationField(
        default=None,
        allow_null=True,
        help_text="In seconds, or as hh:mm:ss. A batch session that runs longer is ended.",
    )
    depends_on = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=list,
        help_text="Ids or names of own sessions that must have ended well first. Batch only.",
    )
    agents = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, help_text="The only agents it may run on."
    )
    placement = serializers.CharField(
        max_length=16, default="", allow_blank=True, help_text="How sessions of one launch lie: spread or pack."
    )
    retry_on_agent_loss = serializers.BooleanField(
        default=False, help_text="Wait again and run from the start when its node is lost. Batch only."
    )
    launch_id = serializers.UUIDField(
        default=None, allow_null=True, help_text="Sessions launched with the same id belong together."
    )
    owner = serializers.CharField(
        max_length=254,
        default="",
        allow_blank=True,
        help_text="Administrators: the e-mail address of whom it is launched for. Left out: oneself.",
    )
    files = BroughtFileBody(
        many=True,
        default=list,
        help_text="In the home folder before anything runs: 10 text files of 256 KiB together at most.",
    )

    mounts = MountBody(many=True, default=list, help_text="Folders that every kernel mounts: 32 at most.")
    start_in = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        help_text="A folder of the mounts, or its path, where programs begin. Empty: in /home/work.",
    )

    def spec(self) -> SessionSpec:
        """Return the validated request as the services take it."""
        values = dict(self.validated_data)
        files = [BroughtFile(**each) for each in values.pop("files")]
        mounts = [MountWish(**each) for each in values.pop("mounts")]
        return SessionSpec(session_type=values.pop("type"), files=files, mounts=mounts, **values)


class RenameRequest(StrictSerializer):
    """Another name."""

    name = serializers.CharField(max_length=LONGEST_NAME_READ, help_text=NAME_RULE)


class PriorityRequest(StrictSerializer):
    """Another priority."""

    priority = serializers.IntegerField(help_text="0 to 100, and no more than the policies of its owner allow.")


class TerminateRequest(StrictSerializer):
    """How to end a session."""

    force = serializers.BooleanField(default=False)


class TerminateManyRequest(TerminateRequest):
    """Which sessions to end, and how."""

    sessions = serializers.ListField(child=serializers.UUIDField(), allow_empty=False, help_text="100 at most.")


class RefusalBody(serializers.Serializer[Refusal]):
    """A session that was not ended, and why. Without a name there is none that one may see."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    code = serializers.CharField()
    message = serializers.CharField()


class EndedManyBody(serializers.Serializer[EndedMany]):
    """Ids of those that never ran, are on their way out, and were freed by force; and what was refused."""

    cancelled = serializers.ListField(child=serializers.UUIDField(), source="ended.cancelled")
    terminating = serializers.ListField(child=serializers.UUIDField(), source="ended.terminating")
    forced = serializers.ListField(child=serializers.UUIDField(), source="ended.forced")
    refused = RefusalBody(many=True)


class KernelBody(Answer[Kernel]):
    """One kernel of a session."""

    agent = serializers.CharField(source="agent_name", read_only=True)
    status = serializers.CharField()
    status_message = serializers.CharField(source="reason_text")
    resources = serializers.SerializerMethodField()
    devices = serializers.SerializerMethodField()

    class Meta:
        model = Kernel
        fields = [
            "id", "role", "index", "rank", "hostname", "agent", "container_id", "status", "status_reason",
            "status_message", "exit_code", "progress", "fetched_bytes", "image_bytes", "resources", "devices",
            "is_unconfirmed", "created_at", "started_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Amounts)
    def get_resources(self, kernel: Kernel) -> dict[str, str]:
        """Return its slots as decimal strings."""
        return dict(kernel.slots)

    @extend_schema_field({"type": "object", "additionalProperties": _Amounts})
    def get_devices(self, kernel: Kernel) -> dict[str, dict[str, str]]:
        """Return how much of which device it was given, by slot."""
        return dict(kernel.devices)


class MountedBody(serializers.Serializer[SessionMount]):
    """A folder that the session mounts."""

    folder = serializers.UUIDField(source="folder_id", allow_null=True)
    name = serializers.CharField(source="folder_name")
    path = serializers.CharField(source="sub_path")
    target = serializers.CharField()
    rights = serializers.CharField()
    is_automatic = serializers.BooleanField()


class SessionBody(Answer[ComputeSession]):
    """A compute session with its kernels."""

    type = serializers.CharField(source="session_type")
    status = serializers.CharField()
    status_message = serializers.CharField(source="reason_text")
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
    resources = serializers.SerializerMethodField(help_text="Of each kernel.")
    environ = serializers.SerializerMethodField(help_text="The owner's variables; null for anybody else.")
    kernels = KernelBody(many=True, source="shown_kernels")
    mounts = MountedBody(many=True, source="shown_mounts")

    class Meta:
        model = ComputeSession
        fields = [
            "id", "name", "type", "status", "status_reason", "status_message", "status_data", "result", "owner",
            "launched_by", "project", "resource_group", "image", "resources", "shm_bytes", "cluster_size",
            "cluster_mode", "environ", "preopen_ports", "startup_command", "starts_at", "batch_timeout",
            "designated_agents", "placement", "launch_id", "priority", "retry_on_agent_loss", "queue_position",
            "attempts", "retries", "version", "created_at", "scheduled_at", "started_at", "ends_at", "terminating_at",
            "ended_at", "kernels", "mounts", "start_in",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Amounts)
    def get_resources(self, session: ComputeSession) -> dict[str, str]:
        """Return the slots of each kernel as decimal strings."""
        return dict(session.slots)

    @extend_schema_field(_Words)
    def get_environ(self, session: ComputeSession) -> dict[str, Any] | None:
        """Return the variables to the owner only: people keep keys in them."""
        return dict(session.environ) if session.owner_id == self.context["request"].user.pk else None


class StepBody(serializers.Serializer[Any]):
    """One thing that was looked at or done within a row of the scheduling history."""

    step = serializers.CharField()
    result = serializers.CharField()
    message = serializers.CharField()
    error_code = serializers.CharField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()


class RecordBody(Answer[SchedulingRecord]):
    """One row of the scheduling history."""

    id = serializers.UUIDField(source="uid", read_only=True)
    phase = serializers.CharField()
    result = serializers.CharField()
    sub_steps = serializers.SerializerMethodField()

    class Meta:
        model = SchedulingRecord
        fields = [
            "id", "phase", "result", "from_status", "to_status", "attempts", "error_code", "message", "sub_steps",
            "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(StepBody(many=True))
    def get_sub_steps(self, record: SchedulingRecord) -> list[dict[str, Any]]:
        """Return its steps, each with all of its fields."""
        return shown_steps(record)
