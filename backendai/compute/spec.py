"""What somebody asks for when launching: one shape for the browser's form, REST and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A launch request as typed; ``services.create`` checks every field and names the one that is wrong.

    ``resources`` are border amounts (``{"cpu": 1, "mem": "512m"}``); empty fields mean the default.
    """

    image: str
    name: str = ""
    session_type: str = "interactive"
    resources: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    resource_group: str = ""
    project: UUID | str | None = None
    shm: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    startup_command: str = ""
    starts_at: datetime | None = None
    cluster_size: int = 1
