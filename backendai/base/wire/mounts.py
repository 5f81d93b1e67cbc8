"""Folders that a kernel mounts, in messages between portal and agent."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from backendai.base.wire.fields import Message, Name, Order, Sentence

MOST_HOSTS = 32  # the most storage hosts that one agent may report


class MountSpec(Order):
    """One folder that a kernel mounts. ``host``: the storage host, which each agent maps to its own path. ``sub_path``:
    relative to the folder. ``target``: absolute inside the kernel."""

    host: str
    folder_id: UUID
    folder_name: str
    sub_path: str = ""
    target: str
    rights: Literal["view", "edit"]
    is_automatic: bool = False  # if the folder cannot be mounted, the kernel starts without it
    linked_path: str = ""  # an existing path, mounted read-only; a setting of the agent must allow the path


class HostReport(Message):
    """A storage host as an agent sees it. ``fault``: why kernels cannot mount its folders on this agent (empty: they
    can)."""

    name: Name
    fault: Sentence = ""
    read_only: bool = True  # whether read-only mounts can be enforced
    sub_paths: bool = True
    free_bytes: int | None = Field(default=None, ge=0, lt=2**63)
