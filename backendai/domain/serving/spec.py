"""What somebody asks for when creating or changing an endpoint: one shape for the form, REST and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backendai.domain.compute.spec import MountRequest


@dataclass(frozen=True, slots=True)
class RevisionSpec:
    """What each replica runs, as typed. ``resources`` are amounts of each kernel."""

    image: str
    command: str
    port: int = 8000
    environ: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    cluster_size: int = 1
    cluster_mode: str = "single-node"
    probe_path: str = "/health"
    startup_timeout: float = 1200.0
    drain_timeout: float = 600.0
    model_name: str = ""
    mounts: Sequence[MountRequest] = ()


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """A new endpoint. ``asleep_after``: seconds without a request after which an endpoint with ``minimum`` 0 has no
    replica."""

    name: str
    revision: RevisionSpec
    project: str = ""
    resource_group: str = ""
    minimum: int = 1
    maximum: int = 1
    target: float = 4.0
    concurrency: int = 0
    queue: int = 100
    queue_seconds: float = 30.0
    hold_seconds: float = 60.0
    answer_timeout: float = 600.0
    is_public: bool = False
    is_repeatable: bool = False
    asleep_after: float = 900.0
    max_surge: int = 1
    max_unavailable: int = 0
    origins: Sequence[str] = ()
    warm_up: float = 0.0
    affinity: str = ""
    canary: int = 0
