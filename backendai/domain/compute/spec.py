"""A launch request: the only list of its fields, with their types, limits and help.

The browser, REST, documents and tests make this object. ``spec_document`` reads it from JSON by these annotations, and
publishes them as JSON Schema. Limits here only bound what is read; ``services.requests`` validates the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from backendai.base.core.labels import LONGEST_NOTE
from backendai.base.core.session_kinds import USUAL_KIND, launched_kinds
from backendai.domain.compute.spec_values import (
    amount,
    bounded,
    duration,
    launched_kind,
    moment,
    storable,
    stripped,
)

# The rule is the service's, which refuses a longer name in its own words; this only keeps the answer short.
LONGEST_NAME_READ = 200
NAME_RULE = "4 to 64 letters, digits, dots, dashes and underscores; begins and ends with a letter or a digit."
_LARGEST = 2**31 - 1
_CLOSED = ConfigDict(extra="forbid")

Text = Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(storable)]
Word = Annotated[Text, Field(max_length=64), AfterValidator(stripped)]
Long = Annotated[Text, Field(max_length=255)]
Command = Annotated[Text, Field(max_length=2**16)]
Number = Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]
Amount = Annotated[
    Any, BeforeValidator(amount), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "maxLength": 40}]})
]
Amounts = Annotated[Mapping[Word, Amount], BeforeValidator(bounded)]
Values = Annotated[Mapping[Text, Any], BeforeValidator(bounded)]
Variables = Annotated[Mapping[Text, Annotated[Text, Field(max_length=8192)]], BeforeValidator(bounded)]
Numbers = Annotated[Sequence[Number], BeforeValidator(bounded)]
Words = Annotated[Sequence[Word], BeforeValidator(bounded)]
Moment = Annotated[datetime, BeforeValidator(moment)]
Duration = Annotated[
    timedelta, BeforeValidator(duration), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})
]


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A text file for a new session's home. The text may contain secrets."""

    __pydantic_config__ = _CLOSED
    path: Annotated[Long, Field(description="Relative to the home folder.")]
    content: Annotated[Text, Field(max_length=2**18)] = field(repr=False)

    @property
    def size(self) -> int:
        """The size of the text in bytes."""
        return len(self.content.encode())


@dataclass(frozen=True, slots=True)
class MountRequest:
    """A folder to mount."""

    __pydantic_config__ = _CLOSED
    folder: Annotated[Word, Field(description="ID or name.")]
    path: Annotated[Text, Field(max_length=1024, description="A path inside the folder; empty: the whole folder.")] = ""
    target: Annotated[
        Long, Field(description="Mount path: absolute, or relative to /home/work. Empty: /home/work/NAME.")
    ] = ""
    rights: Annotated[Word, Field(description="view or edit; empty: your rights.")] = ""


Mounts = Annotated[Sequence[Annotated[MountRequest, BeforeValidator(bounded)]], BeforeValidator(bounded)]


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """The settings of kernels that differ from the others. Empty fields mean the session's values; ``environ`` and
    ``mounts`` are added to the session's."""

    __pydantic_config__ = _CLOSED
    count: Number = 1
    image: Annotated[Long, AfterValidator(stripped)] = ""
    resources: Amounts = field(default_factory=dict)
    shm: Word = ""
    environ: Variables = field(default_factory=dict)
    startup_command: Command = ""
    mounts: Annotated[Mounts, Field(description="Additional folders of this role.")] = ()
    on_failure: Annotated[
        Word,
        Field(description="What the failure of one of its kernels does: end (the default), tolerate or restart."),
    ] = ""
    after: Annotated[Words, Field(description="Roles that must be ready first.")] = ()
    ready: Annotated[
        Mapping[Word, Number],
        BeforeValidator(bounded),
        Field(
            description="When its kernels are ready: tcp, a port on which a program must listen, within 1 to 100 "
            "seconds. Empty: when their programs run."
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A launch request as entered; empty fields mean the default."""

    __pydantic_config__ = _CLOSED
    image: Annotated[
        Long,
        AfterValidator(stripped),
        Field(description="Name, alias or reference. Required, unless a template or the main role has one."),
    ]
    name: Annotated[
        Text,
        Field(max_length=LONGEST_NAME_READ, description=f"{NAME_RULE} Default: generated."),
        AfterValidator(stripped),
    ] = ""
    session_type: Annotated[
        str,
        AfterValidator(launched_kind),
        Field(alias="type", json_schema_extra={"enum": [name for name, _label in launched_kinds()]}),
    ] = USUAL_KIND.name
    resources: Annotated[Amounts, Field(description='Amounts of each kernel, such as {"cpu": 1, "mem": "512m"}.')] = (
        field(default_factory=dict)
    )
    preset: Word = ""
    resource_group: Word = ""
    project: Annotated[Word | None, Field(description="ID or name. Default: your first one.")] = None
    shm: Annotated[Word, Field(description="Shared memory, a part of the memory.")] = ""
    environ: Variables = field(default_factory=dict)
    startup_command: Annotated[Command, Field(description="The program of a batch session.")] = ""
    preopen_ports: Annotated[Numbers, Field(description="1024 to 65535; opened as apps; at most 20.")] = ()
    starts_at: Annotated[Moment | None, Field(description="Batch: not before this time.")] = None
    cluster_size: Annotated[Number, Field(description="Number of equal kernels.")] = 1
    cluster_mode: Annotated[
        Word, Field(description="single-node: all kernels on one agent; multi-node: on several.")
    ] = "single-node"
    priority: Annotated[Number | None, Field(description="0 to 100; default: 10. Policies can set a lower limit.")] = (
        None
    )
    batch_timeout: Annotated[
        Duration | None,
        Field(description="Time limit of a batch session: 90s, 15m, 2h or 1d, seconds, or hh:mm:ss."),
    ] = None
    depends_on: Annotated[
        Words, Field(description="IDs or names of your sessions that must end first. Batch only.")
    ] = ()
    depends_when: Annotated[Word, Field(description="How they must end: success (the default), failure, or any.")] = ""
    agents: Annotated[Words, Field(description="The only agents that can run the session.")] = ()
    placement: Annotated[Word, Field(description="spread or pack the sessions of one launch_id.")] = ""
    launch_id: Annotated[UUID | None, Field(description="Sessions with the same launch_id belong together.")] = None
    owner: Annotated[
        Text,
        Field(max_length=254, description="Administrators: the e-mail address of the owner. Default: you."),
        AfterValidator(stripped),
    ] = ""
    retry_on_agent_loss: Annotated[
        bool, Field(description="Queue and start again when the agent is lost. Batch only.")
    ] = False
    may_be_stopped: Annotated[
        bool,
        Field(description="Batch of one kernel: can be stopped, with SIGTERM, and begins again when it is resumed."),
    ] = False
    access_key: Annotated[
        Word, Field(description="The owner's key pair to which the session counts. Default: the main one.")
    ] = ""
    files: Annotated[
        Sequence[Annotated[LaunchFile, BeforeValidator(bounded)]],
        BeforeValidator(bounded),
        Field(description="Text files in the home folder before the start: at most 10, 256 KiB in total."),
    ] = ()
    mounts: Annotated[Mounts, Field(description="Folders that every kernel mounts; at most 32.")] = ()
    start_in: Annotated[
        Long,
        AfterValidator(stripped),
        Field(
            description="A folder of the mounts, its path, or /home/work. Empty: the only one to write to, else "
            "/home/work."
        ),
    ] = ""
    roles: Annotated[
        Mapping[Word, Annotated[RoleSpec, BeforeValidator(bounded)]],
        BeforeValidator(bounded),
        Field(description="Kernels that differ, by role; one main kernel. Instead of cluster_size."),
    ] = field(default_factory=dict)
    labels: Annotated[
        Mapping[Word, Long],
        BeforeValidator(bounded),
        Field(description='Up to 16, such as {"experiment": "baseline"}, to find the session again.'),
    ] = field(default_factory=dict)
    note: Annotated[Text, Field(max_length=2 * LONGEST_NOTE, description="A text of at most 500 characters.")] = ""
    done_when: Annotated[
        Word, Field(description="Batch only: the role whose kernels must all finish, or all. Default: main.")
    ] = ""
    command_in: Annotated[
        Word,
        Field(
            description="Batch cluster: main runs the command in the main kernel only, once the others run. Default: "
            "in all."
        ),
    ] = ""
    template: Annotated[
        Text,
        Field(
            max_length=80,
            description="scope/name, scope/name@version or an ID: the other fields override it.",
        ),
        AfterValidator(stripped),
    ] = ""
    parameters: Annotated[Values, Field(description="Values of the template's parameters, by name.")] = field(
        default_factory=dict
    )
