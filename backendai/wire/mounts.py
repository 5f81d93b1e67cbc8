"""Folders that a kernel mounts, in messages between portal and agent."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from backendai.wire.fields import Message, Name, Order, Sentence

MOST_HOSTS = 32  # the most storage hosts that one agent may report


class MountSpec(Order):
    """One folder that a kernel mounts. ``host`` names the storage host, which each agent maps to its own path;
    ``sub_path`` is relative to the folder, ``target`` absolute inside the kernel."""

    host: str
    folder_id: UUID
    folder_name: str
    sub_path: str = ""
    target: str
    rights: Literal["view", "edit"]
    is_automatic: bool = False  # the kernel starts without the folder where it cannot be mounted
    linked_path: str = ""  # an existing path that is offered read-only; the agent's own setting must allow it


class HostReport(Message):
    """A storage host as an agent sees it. ``fault``: why kernels cannot mount its folders on this agent; empty: they
    can."""

    name: Name
    fault: Sentence = ""
    read_only: bool = True  # whether read-only mounts can be enforced
    sub_paths: bool = True
    free_bytes: int | None = Field(default=None, ge=0)
