"""Launch documents from the comment lines of a script: ``#BAI key: value``, or else the defined part of ``#SBATCH``.

Nothing is sent here. A line that means nothing here is a warning with its number.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import PurePath
from typing import Any, Callable

Document = dict[str, Any]
_BAI, _SBATCH = re.compile(r"#\s?BAI\s+(.*)"), re.compile(r"#SBATCH\s+(.*)")
_KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*:\s*(.*)")
_MODULE = re.compile(r"\s*module\s+(load|add)\b")
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_KEPT_BY_PLATFORM = "the platform keeps the output: `bai logs`"
_WHEN = {"afterok": "success", "afternotok": "failure", "afterany": "any"}
_SLURM = {  # static values are added by the options that set them
    "SLURM_JOB_ID": "$BACKENDAI_SESSION_ID",
    "SLURM_JOB_NODELIST": "$BACKENDAI_CLUSTER_HOSTS",
    "SLURM_ARRAY_TASK_ID": "$BACKENDAI_ARRAY_INDEX",
    "SLURM_ARRAY_TASK_COUNT": "$BACKENDAI_ARRAY_COUNT",
    "SLURM_PROCID": "${NODE_RANK:-0}",
    "SLURM_NODEID": "${NODE_RANK:-0}",
}


@dataclass
class Script:
    """What the lines of a script say. ``document`` may have ``array`` and ``at_once``, which make it a run."""

    document: Document = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    is_slurm: bool = False
    environ: dict[str, str] = field(default_factory=dict)
    per_cpu: str = ""
    tasks: int = 0
    tasks_per_node: int = 1

    def warn(self, number: int, text: str) -> None:
        """Note what a line does not do."""
        self.warnings.append(f"line {number}: {text}")


def read_script(text: str, now: datetime) -> Script:
    """Return what the comment lines say. Raises ValueError for a value that cannot be meant."""
    script, lines = Script(), list(enumerate(text.splitlines(), 1))
    ours = [(number, found[1]) for number, line in lines if (found := _BAI.match(line))]
    theirs = [(number, found[1]) for number, line in lines if (found := _SBATCH.match(line))]
    script.is_slurm = bool(theirs) and not ours
    for number, said in ours or theirs:
        try:
            if ours:
                _read_ours(script, said)
            for option, value in _options(said) if script.is_slurm else []:
                _read_slurm(script, number, option, value, now)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    if script.is_slurm:
        _combine(script)
    if modules := [number for number, line in lines if _MODULE.match(line)]:
        script.warn(modules[0], "`module load` fails here: choose an image that has the program")
    return script


def command_of(name: str, text: str, arguments: tuple[str, ...], *, is_slurm: bool) -> str:
    """Return the command that runs a script that lies in the home folder."""
    first = text.partition("\n")[0]
    interpreter = first[2:].strip() if first.startswith("#!") else "/bin/bash"
    command = f"{interpreter} ~/{shlex.quote(name)}" + "".join(f" {shlex.quote(one)}" for one in arguments)
    if not is_slurm:
        return command
    words = " ".join(f'{key}="{value}"' for key, value in _SLURM.items())
    return f"export {words}; exec {command}"


def name_of(path: str) -> str:
    """Return a name for a session from the name of a file."""
    name = _NAME.sub("-", PurePath(path).stem).strip("._-")[:64]
    return name if len(name) >= 4 else f"job-{name or 'script'}"


def put(document: Document, key: str, value: Any) -> None:
    """Set a value by its key; dots lead into maps, and the short keys of options are known. None changes nothing."""
    if value is None or value == ():
        return
    if key == "gpu":
        key = "resources." + ("cuda.device" if float(value) == int(float(value)) else "cuda.shares")
    elif key in ("cpu", "mem"):
        key = f"resources.{key}"
    top, _, rest = key.partition(".")
    key = top = {"time": "batch_timeout", "folder": "mounts", "after": "depends_on", "env": "environ"}.get(top, top)
    if rest:
        document[top] = {**document.get(top, {}), rest: value}
    elif key == "mounts" and isinstance(value, str):
        document[key] = [*document.get(key, []), mount_of(value)]
    elif key == "array" and isinstance(value, str):
        document.update(array_of(value))
    elif key == "depends_on" and isinstance(value, str):
        document[key] = [*document.get(key, []), value]
    else:
        document[key] = value


def mount_of(text: str) -> dict[str, str]:
    """Return FOLDER[/PATH][:TARGET][:ro] as a mount."""
    name, *rest = text.split(":")
    folder, _, path = name.partition("/")
    rights = {"ro": "view", "rw": "edit"}
    mount = {"folder": folder} | ({"path": path} if path else {})
    if rest and rest[-1] in rights:
        mount["rights"] = rights[rest.pop()]
    if len(rest) > 1 or not folder:
        raise ValueError(f"{text!r} is no mount: write FOLDER, FOLDER:/target or FOLDER:/target:ro.")
    return mount | ({"target": rest[0]} if rest else {})


def array_of(text: str) -> Document:
    """Return 10, 0-99%4, 1,3,5 or 0-20:2 as the keys of a run."""
    numbers, _, at_once = text.partition("%")
    try:
        indexes: list[int] = []
        for part in numbers.split(","):
            span, _, step = part.partition(":")
            first, dash, last = span.partition("-")
            indexes += range(int(first), int(last if dash else first) + 1, int(step or 1))
        array: Any = list(range(int(numbers))) if numbers.isdecimal() else sorted(set(indexes))
        told: Document = {"array": len(array) if array == list(range(len(array))) else array}
        return told | ({"at_once": int(at_once)} if at_once else {})
    except ValueError as error:
        raise ValueError(f"{text!r} is no array: write 100, 0-99%4, 1,3,5 or 0-20:2.") from error


def _read_ours(script: Script, said: str) -> None:
    found = _KEY.fullmatch(said.strip())
    if not found:
        raise ValueError(f"{said.strip()!r} is not `key: value`")
    key, text = found[1], found[2]
    try:
        value = json.loads(text)
    except ValueError:
        value = text.strip("'\"")
    put(script.document, key, text if key == "array" and not isinstance(value, list) else value)


def _options(said: str) -> list[tuple[str, str | None]]:
    """Return the options of a line with their values."""
    words, found = shlex.split(said, comments=True), list[tuple[str, "str | None"]]()
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            raise ValueError(f"{word!r} belongs to no option")
        name, has_value, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            found.append((word[:2], word[2:].lstrip("=")))
        elif has_value:
            found.append((name, value))
        else:
            found.append((name, words.pop(0) if words and not words[0].startswith("-") else None))
    return found


def _read_slurm(script: Script, number: int, option: str, value: str | None, now: datetime) -> None:
    name = _LONG.get(option, option.lstrip("-") if option.startswith("--") else option)
    if name in ("output", "error"):
        script.warn(number, f"{option} is not used; {_KEPT_BY_PLATFORM}")
    elif name == "requeue":
        script.document["retry_on_agent_loss"] = True
    elif name not in _VALUES:
        script.warn(number, f"{option} is not known here and does nothing")
    elif value is None:
        raise ValueError(f"{option} needs a value")
    else:
        _VALUES[name](script, value, now)


def _combine(script: Script) -> None:
    """Multiply tasks by cores and memory, and set the variables that follow."""
    document = script.document
    resources = document.setdefault("resources", {})
    each, size = int(resources.get("cpu", 1)), int(document.get("cluster_size", 1))
    if script.tasks and script.tasks_per_node == 1:
        script.tasks_per_node = -(-script.tasks // size)
    if each * script.tasks_per_node > 1 or "cpu" in resources:
        resources["cpu"] = each * script.tasks_per_node
    if script.per_cpu:
        amount, unit = int(script.per_cpu[:-1]), script.per_cpu[-1]
        resources["mem"] = f"{amount * each * script.tasks_per_node}{unit}"
    variables = {
        "SLURM_JOB_NAME": document.get("name"),
        "SLURM_CPUS_PER_TASK": each,
        "SLURM_NTASKS": script.tasks or script.tasks_per_node * size,
        "SLURM_NNODES": size,
    }
    told = {key: str(value) for key, value in variables.items() if value is not None}
    document["environ"] = {**told, **script.environ}


def _name(script: Script, value: str, now: datetime) -> None:
    script.document["name"] = name_of(value + ".sh")


def _gpus(script: Script, value: str, now: datetime) -> None:
    kind, *rest = value.split(":")
    amount = rest[-1] if rest else ("1" if not kind.isdecimal() else kind)
    if (rest and kind not in ("gpu",) and len(rest) > 1) or not amount.isdecimal():
        raise ValueError(f"{value!r} is no number of GPUs")
    put(script.document, "gpu", int(amount))


def _nodes(script: Script, value: str, now: datetime) -> None:
    number = int(value.split("-")[-1])
    if number > 1:
        script.document |= {"cluster_size": number, "cluster_mode": "multi-node"}


def _memory(value: str) -> str:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
    if not found:
        raise ValueError(f"{value!r} is no memory")
    return f"{found[1]}{(found[2] or 'M').lower()}"


def _time(script: Script, value: str, now: datetime) -> None:
    days, dash, rest = value.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # MM[:SS]
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    if total:  # 0 is no limit
        script.document["batch_timeout"] = total


def _dependency(script: Script, value: str, now: datetime) -> None:
    kinds = {part.partition(":")[0] for part in value.split(",")}
    if len(kinds) != 1 or not kinds <= set(_WHEN):
        raise ValueError(f"{value!r}: one of {', '.join(_WHEN)} with sessions is possible")
    sessions = [one.partition("+")[0] for part in value.split(",") for one in part.split(":")[1:]]
    script.document |= {"depends_on": sessions, "depends_when": _WHEN[kinds.pop()]}


def _export(script: Script, value: str, now: datetime) -> None:
    for part in value.split(","):
        name, has_value, text = part.partition("=")
        if has_value:
            script.environ[name] = text
        elif name not in ("ALL", "NONE", "NIL") and name in os.environ:
            script.environ[name] = os.environ[name]


def _begin(script: Script, value: str, now: datetime) -> None:
    found = re.fullmatch(r"now(?:\+(\d+)(second|minute|hour|day|week)?s?)?", value)
    if found:
        at = now + timedelta(**{f"{found[2] or 'second'}s": int(found[1] or 0)})
    elif clock := re.fullmatch(r"(\d\d?):(\d\d)(?::(\d\d))?", value):
        local = now.astimezone()
        at = local.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0)
        at += timedelta(days=1 if at <= local else 0)
    else:
        at = datetime.fromisoformat(value).astimezone()
    script.document["starts_at"] = at.astimezone(timezone.utc).isoformat()


def _setter(key: str, read: Callable[[str], Any]) -> Callable[[Script, str, datetime], None]:
    return lambda script, value, now: put(script.document, key, read(value))


def _attribute(name: str, read: Callable[[str], Any]) -> Callable[[Script, str, datetime], None]:
    return lambda script, value, now: setattr(script, name, read(value))


_LONG: Mapping[str, str] = {
    "-J": "job-name", "-c": "cpus-per-task", "-G": "gpus", "-t": "time", "-a": "array", "-d": "dependency",
    "-N": "nodes", "-n": "ntasks", "-o": "output", "-e": "error", "-p": "partition", "-A": "account", "-b": "begin",
}  # fmt: skip
_VALUES: Mapping[str, Callable[[Script, str, datetime], None]] = {
    "job-name": _name,
    "cpus-per-task": _setter("cpu", int),
    "mem": _setter("mem", _memory),
    "mem-per-cpu": _attribute("per_cpu", _memory),
    "gres": _gpus,
    "gpus": _gpus,
    "gpus-per-node": _gpus,
    "time": _time,
    "array": _setter("array", str),
    "dependency": _dependency,
    "nodes": _nodes,
    "ntasks": _attribute("tasks", int),
    "ntasks-per-node": _attribute("tasks_per_node", int),
    "export": _export,
    "partition": _setter("resource_group", str),
    "account": _setter("project", str),
    "begin": _begin,
}
