"""What clients of files ask for, and nothing else: for sessions in which no programs are started."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from backendai.gates.sshgate.link import GuestRefused

_REFUSED = "This session is for files alone: use sftp, scp or rsync."
_FOREIGN = ("--daemon", "--config", "--rsh", "--rsync-path", "--log-file", "--dparam")  # of rsync


def only_files(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the question as one that no shell reads. Raises GuestRefused for what is more than copying files."""
    if question["op"] == "sftp":
        return dict(question)
    command = question.get("command")
    if question["op"] != "exec" or not isinstance(command, str) or "pty" in question:
        raise GuestRefused("files-only", _REFUSED)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise GuestRefused("files-only", _REFUSED) from error
    if not (_is_scp(words) or _is_rsync(words)):
        raise GuestRefused("files-only", _REFUSED)
    return {"op": "transfer", "argv": words, "env": question.get("env", {})}


def _is_scp(words: Sequence[str]) -> bool:
    """Return whether these words are the other end of a copy: known options, one of them its direction, and a path."""
    *options, path = [word for word in words[1:] if word != "--"] or [""]
    is_known = bool({"-t", "-f"} & set(options)) and set(options) <= {"-r", "-p", "-v", "-d", "-q", "-t", "-f"}
    return words[:1] == ["scp"] and is_known and not path.startswith("-")


def _is_rsync(words: Sequence[str]) -> bool:
    return words[:2] == ["rsync", "--server"] and not any(word.startswith(_FOREIGN) for word in words[2:])
