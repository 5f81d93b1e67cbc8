"""Unmounts a folder in a running kernel, in a child process with a deadline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.shared.slow_machine import with_cause
from backendai.agent.mounts.cutting import NOT_ALLOWED, NOT_APART, NOT_MOUNTED, NOT_SEEN
from backendai.base.core.messages import Message
from backendai.base.process.slowness import allowed

_SECONDS = 10.0
_PACKAGE = str(Path(__file__).resolve().parents[3])
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from backendai.agent.mounts.cutting import main; main()"
_WORDS = {
    NOT_APART: Message("The programs of this session are not shut in, so the folder cannot be unmounted for them."),
    NOT_ALLOWED: Message("This agent does not have the right to unmount folders of sessions that run."),
    NOT_SEEN: Message("This agent runs in a container and does not see the programs of sessions."),
    NOT_MOUNTED: Message("No program of this session sees the folder."),
}


def unmount_folder(pids: Sequence[int], folder_id: UUID) -> int:
    """Unmount a folder in the kernel of these processes; returns how many programs using it were killed. Raises
    BackendError."""
    order = json.dumps({"pids": list(pids), "folder": str(folder_id)})
    command = [sys.executable, "-I", "-S", "-c", _CODE, _PACKAGE]
    longest = allowed(_SECONDS)
    told = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, input=order, capture_output=True, text=True, timeout=longest, env=told, cwd="/", check=False
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        text = Message("The folder could not be unmounted within {seconds} s.", seconds=round(longest))
        raise BackendError(with_cause(text)) from error
    except ValueError as error:
        raise BackendError("The folder could not be unmounted: {output}", output=done.stderr.strip()[-300:]) from error
    if code := answer.get("code"):
        raise BackendError(_WORDS[code], code=f"folder-{code}")
    return int(answer["ended"])
