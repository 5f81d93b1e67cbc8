"""The body of a launch request. Its names are a contract: add, never rename."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.base.core.session_kinds import USUAL_KIND, launched_kinds
from backendai.domain.compute.services.requests.order import MAIN
from backendai.domain.compute.spec import LaunchFile, MountRequest, RoleSpec, SessionSpec
from backendai.domain.compute.spec_document import VERSION
from backendai.portal.api.frame.parsing import AmountsField, LengthField, MomentField, StrictSerializer

# The rule is the service's, which refuses a longer name in its own words; this only keeps the answer short.
LONGEST_NAME_READ = 200
NAME_RULE = "4 to 64 letters, digits, dots, dashes and underscores; begins and ends with a letter or a digit."


class BroughtFileBody(StrictSerializer):
    """A text file for the home folder of the session."""

    path = serializers.CharField(max_length=255, trim_whitespace=False, help_text="Relative to the home folder.")
    content = serializers.CharField(max_length=2**18, allow_blank=True, trim_whitespace=False)


class MountBody(StrictSerializer):
    """A folder to mount."""

    folder = serializers.CharField(max_length=64, help_text="ID or name.")
    path = serializers.CharField(
        max_length=1024,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="A path inside the folder; empty: the whole folder.",
    )
    target = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="Mount path: absolute, or relative to /home/work. Empty: /home/work/NAME.",
    )
    rights = serializers.CharField(
        max_length=8, default="", allow_blank=True, help_text="view or edit; empty: your rights."
    )


class ReadyBody(StrictSerializer):
    """The readiness check of a kernel: it is ready when a program listens on the port."""

    tcp = serializers.IntegerField(required=False, help_text="The port.")
    within = serializers.IntegerField(required=False, help_text="Seconds until the start has failed: 1 to 100.")


class RoleBody(StrictSerializer):
    """The settings of kernels that differ from the others; omitted fields are the session's."""

    count = serializers.IntegerField(default=1)
    image = serializers.CharField(max_length=255, default="", allow_blank=True)
    resources = AmountsField(default=dict)
    shm = serializers.CharField(max_length=40, default="", allow_blank=True)
    environ = serializers.DictField(
        child=serializers.CharField(max_length=8192, allow_blank=True, trim_whitespace=False), default=dict
    )
    startup_command = serializers.CharField(max_length=2**16, default="", allow_blank=True, trim_whitespace=False)
    mounts = MountBody(many=True, default=list, help_text="Additional folders of this role.")
    on_failure = serializers.CharField(
        max_length=16, default="", allow_blank=True, help_text="end (the default), tolerate or restart."
    )
    after = serializers.ListField(
        child=serializers.CharField(max_length=16), default=list, help_text="Roles that must be ready first."
    )
    ready = ReadyBody(default=dict, help_text="When its kernels are ready; default: when their programs run.")


class LaunchRequest(StrictSerializer):
    """A launch request; omitted fields get their default."""

    version = serializers.IntegerField(
        default=VERSION, min_value=VERSION, max_value=VERSION, help_text="Of the document: 1."
    )
    name = serializers.CharField(
        max_length=LONGEST_NAME_READ, default="", allow_blank=True, help_text=f"{NAME_RULE} Default: generated."
    )
    type = serializers.ChoiceField(choices=launched_kinds(), default=USUAL_KIND.name)
    image = serializers.CharField(
        max_length=255, default="", help_text="Required, unless a template or the main role has one."
    )
    resources = AmountsField(default=dict)
    preset = serializers.CharField(max_length=64, default="", allow_blank=True)
    resource_group = serializers.CharField(max_length=63, default="", allow_blank=True)
    project = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="ID or name.")
    shm = serializers.CharField(max_length=40, default="", allow_blank=True)
    environ = serializers.DictField(
        child=serializers.CharField(max_length=8192, allow_blank=True, trim_whitespace=False), default=dict
    )
    startup_command = serializers.CharField(max_length=2**16, default="", allow_blank=True, trim_whitespace=False)
    preopen_ports = serializers.ListField(
        child=serializers.IntegerField(), default=list, help_text="1024 to 65535; opened as apps; at most 20."
    )
    starts_at = MomentField(default=None, allow_null=True)
    cluster_size = serializers.IntegerField(default=1)
    cluster_mode = serializers.CharField(
        max_length=16, default="single-node", help_text="single-node: all kernels on one agent; multi-node: on several."
    )
    priority = serializers.IntegerField(
        default=None, allow_null=True, help_text="0 to 100; default: 10. Policies can set a lower limit."
    )
    batch_timeout = LengthField(
        default=None,
        allow_null=True,
        help_text="Time limit of a batch session: 90s, 15m, 2h or 1d, seconds, or hh:mm:ss.",
    )
    depends_on = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=list,
        help_text="IDs or names of your sessions that must end first. Batch only.",
    )
    depends_when = serializers.CharField(
        max_length=16,
        default="",
        allow_blank=True,
        help_text="How they must end: success (the default), failure, or any.",
    )
    agents = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, help_text="The only agents that can run the session."
    )
    placement = serializers.CharField(
        max_length=16, default="", allow_blank=True, help_text="spread or pack the sessions of one launch_id."
    )
    retry_on_agent_loss = serializers.BooleanField(
        default=False, help_text="Queue and start again when the agent is lost. Batch only."
    )
    launch_id = serializers.UUIDField(
        default=None, allow_null=True, help_text="Sessions with the same launch_id belong together."
    )
    owner = serializers.CharField(
        max_length=254,
        default="",
        allow_blank=True,
        help_text="Administrators: the e-mail address of the owner. Default: you.",
    )
    files = BroughtFileBody(
        many=True,
        default=list,
        help_text="Text files in the home folder before the start: at most 10, 256 KiB in total.",
    )

    mounts = MountBody(many=True, default=list, help_text="Folders that every kernel mounts; at most 32.")
    roles = serializers.DictField(
        child=RoleBody(),
        default=dict,
        help_text="Kernels that differ, by role; one main kernel. Instead of cluster_size.",
    )
    done_when = serializers.CharField(
        max_length=16,
        default="",
        allow_blank=True,
        help_text="Batch only: the role whose kernels must all finish, or all. Default: main.",
    )
    command_in = serializers.CharField(
        max_length=16,
        default="",
        allow_blank=True,
        help_text="Batch cluster: main runs the command in the main kernel only, once the others run. Default: in all.",
    )
    start_in = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        help_text="A folder of the mounts, its path, or /home/work. Empty: the only one to write to, else /home/work.",
    )
    template = serializers.CharField(
        max_length=80,
        default="",
        allow_blank=True,
        help_text="scope/name, scope/name@version or an ID: the other fields override it.",
    )
    parameters = serializers.DictField(
        child=serializers.JSONField(), default=dict, help_text="Values of the template's parameters, by name."
    )

    retry = serializers.JSONField(
        default=None,
        allow_null=True,
        help_text="Batch: how often a command that fails is launched again, as a number or the retry of a run's step.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values.

        Raises ValidationError if a kernel has no image, or there are parameters without a template.
        """
        main = attrs["roles"].get(MAIN)
        if not attrs["image"] and not (main and main["image"]):
            raise serializers.ValidationError({"image": "Write an image, or a template that has one."}, "required")
        if attrs["parameters"] and not attrs["template"]:
            raise serializers.ValidationError({"parameters": "Only a template has parameters: name it."}, "invalid")
        return attrs

    def spec(self) -> SessionSpec:
        """Return the validated request as a session spec for the services."""
        values = dict(self.validated_data)
        del values["version"], values["retry"]
        files = [LaunchFile(**each) for each in values.pop("files")]
        mounts = [MountRequest(**each) for each in values.pop("mounts")]
        roles = {name: RoleSpec(**_with_mounts(each)) for name, each in values.pop("roles").items()}
        return SessionSpec(session_type=values.pop("type"), files=files, mounts=mounts, roles=roles, **values)


def _with_mounts(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"mounts": [MountRequest(**each) for each in values["mounts"]]}
