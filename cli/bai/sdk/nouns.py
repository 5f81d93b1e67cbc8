"""The things that the portal has, with the fields that programs use; ``data`` has everything that was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

N = TypeVar("N", bound="Noun")
ENDED = ("TERMINATED", "CANCELLED", "ERROR")
RUN_OVER = ("SUCCEEDED", "FAILED", "CANCELLED")


def time_of(text: str) -> datetime:
    """Return a time of the portal."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class Noun:
    """Has an ID and a name."""

    id: str
    name: str
    data: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)

    @classmethod
    def of(cls: type[N], body: Mapping[str, Any]) -> N:
        """Return the thing that an answer describes."""
        told: dict[str, Any] = {}
        for one in fields(cls):
            value = body.get(one.name)
            if one.name != "data" and value is not None:
                told[one.name] = time_of(value) if "datetime" in str(one.type) else value
        return cls(data=body, **told)


@dataclass(frozen=True)
class Session(Noun):
    """A compute session. ``resources`` are those of each kernel, sizes in bytes."""

    type: str = ""
    status: str = ""
    status_reason: str = ""
    status_message: str = ""
    result: str = ""
    owner: str = ""
    project: str = ""
    resource_group: str = ""
    image: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    cluster_size: int = 1
    kernels: list[dict[str, Any]] = field(default_factory=list)
    created_at: datetime | None = None
    started_at: datetime | None = None
    ends_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it will not change any more."""
        return self.status in ENDED

    @property
    def exit_code(self) -> int:
        """The code of an ended session: that of its main kernel's program, 1 if it failed without one."""
        codes = [one["exit_code"] for one in self.kernels if one.get("rank") == 0 and one["exit_code"] is not None]
        failed = self.result == "FAILED" or self.status in ("CANCELLED", "ERROR")
        if self.result == "SUCCESS":
            return 0
        return next((code for code in codes if code), 1) if failed else 0


@dataclass(frozen=True)
class Folder(Noun):
    """Data that outlives sessions."""

    host: str = ""
    owner: str = ""
    rights: str = ""
    status: str = ""
    limit_bytes: int | None = None
    used_bytes: int | None = None
    files_url: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True)
class Image(Noun):
    """What containers start from."""

    title: str = ""
    reference: str = ""
    architecture: str = ""
    minimum: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int | None = None


@dataclass(frozen=True)
class Endpoint(Noun):
    """A lasting address of a model server."""

    url: str = ""
    owner: str = ""
    health: str = ""
    ready: int = 0
    desired: int = 0
    requests_per_second: float | None = None
    p95: float | None = None
    reason: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run(Noun):
    """One execution of an array or a pipeline."""

    kind: str = ""
    status: str = ""
    message: str = ""
    owner: str = ""
    size: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    waits: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    created_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether all its elements have ended."""
        return self.ended_at is not None or self.status in RUN_OVER

    @property
    def exit_code(self) -> int:
        """0 when every element succeeded, else 1."""
        return 0 if self.status == "SUCCEEDED" else 1


@dataclass(frozen=True)
class Agent(Noun):
    """A machine that runs kernels."""

    resource_group: str = ""
    status: str = ""
    schedulable: bool = True
    backend: str = ""
    capacity: Mapping[str, str] = field(default_factory=dict)
    occupied: Mapping[str, str] = field(default_factory=dict)
    drain_started_at: datetime | None = None
    last_seen_at: datetime | None = None
