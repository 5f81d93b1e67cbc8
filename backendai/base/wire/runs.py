"""Requests of the portal to guest agents: one line of JSON with ``op``, answered by lines of JSON."""

from __future__ import annotations

OPERATIONS = frozenset(
    {
        "run", "read", "take", "input", "interrupt", "withdraw", "runs", "code", "follow", "context", "delete-context",
        "restart", "languages", "complete", "put", "get", "delete", "list", "stat", "mkdir", "rename", "remove",
        "find", "zip",
    }
)  # fmt: skip
LARGEST_QUESTION = 4 * 2**20  # code of 1 MiB, escaped
LARGEST_ANSWER = 24 * 2**20  # the largest item contains a picture of 8 MiB
LARGEST_FILE = 2**30
FILE_CHUNK = 256 * 1024
STATES = (
    "QUEUED", "STARTING", "CLEANING", "BUILDING", "RUNNING", "WAITING_INPUT", "INTERRUPTING", "FINISHED", "LOST",
    "CANCELLED",
)  # fmt: skip
ENDED = frozenset({"FINISHED", "LOST", "CANCELLED"})
