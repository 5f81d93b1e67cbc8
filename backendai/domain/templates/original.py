"""Templates of Backend.AI itself (``taskTemplate``, ``clusterTemplate``), read as documents of ours."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS, USUAL_KIND

_TASKS = frozenset({"taskTemplate", "task_template"})
_CLUSTERS = frozenset({"clusterTemplate", "cluster_template"})
_DESTINATION = "/home/work/repository"

Find = Callable[[str], Mapping[str, Any]]


def is_original(said: Mapping[str, Any]) -> bool:
    """Return whether the document is a template of the original."""
    return said.get("kind") in _TASKS | _CLUSTERS


def converted(said: Mapping[str, Any], find: Find) -> dict[str, Any]:
    """Return the document as one of ours. ``find`` returns our document of a template by name or id, for the nodes of
    a cluster. Raises a UserError that names the key."""
    return _task(said) if said["kind"] in _TASKS else _cluster(said, find)


def _task(said: Mapping[str, Any]) -> dict[str, Any]:
    spec = _mapping(said.get("spec"), "spec")
    kernel = _mapping(spec.get("kernel"), "spec.kernel")
    run, git = _mapping(kernel.get("run") or {}, "spec.kernel.run"), kernel.get("git")
    parameters: dict[str, Any] = {}
    lines = [_cloning(_mapping(git, "spec.kernel.git"), parameters)] if git else []
    lines += [str(run["bootstrap"])] if run.get("bootstrap") else []
    startup = _either(run, "startup_command", "startup", "startupCommand")
    kind = _either(spec, "type", "session_type", "sessionType") or USUAL_KIND.name
    if (startup or lines) and not (kind in KINDS and KINDS[kind].takes_command):
        text = Message("Only batch sessions run a command: write sessionType: batch, or leave run and git out.")
        raise UserError(text, field="spec.kernel.run", code="batch-only")
    found = {
        "params": parameters,
        "image": kernel.get("image"),
        "type": kind,
        "environ": kernel.get("environ"),
        "startup_command": "\n".join([*lines, *([str(startup)] if startup else [])]),
        "resource_group": _either(spec, "scaling_group", "scalingGroup"),
        "resources": spec.get("resources"),
        "agents": _either(spec, "agent_list", "agentList"),
        "mounts": _mounts(spec.get("mounts"), "spec.mounts"),
    }
    return {key: value for key, value in found.items() if value}


def _cluster(said: Mapping[str, Any], find: Find) -> dict[str, Any]:
    """Return one session of which each node is a role; what the main node says holds where others say nothing."""
    spec, nodes = _mapping(said.get("spec"), "spec"), _mapping(said.get("spec"), "spec").get("nodes")
    if not isinstance(nodes, list) or not nodes:
        raise UserError("A cluster template has a list of nodes.", field="spec.nodes", code="invalid-document")
    found: dict[str, Any] = {}
    roles: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for number, each in enumerate(nodes):
        node = _mapping(each, f"spec.nodes.{number}")
        name = str(_either(node, "role", "cluster_role") or "")
        task = dict(find(str(_either(node, "session_template", "sessionTemplate") or "")))
        parameters |= task.pop("params", None) or {}
        if name in roles:
            text = Message("Role {name} is set twice.", name=repr(name[:32]))
            raise UserError(text, field=f"spec.nodes.{number}.role", code="invalid-role")
        roles[name] = _role(task, node.get("replicas", 1))
        if name == "main":
            found = {key: task[key] for key in ("type", "resource_group", "image") if key in task}
    if "main" not in roles:
        raise UserError("A cluster has one main node.", field="spec.nodes", code="invalid-role")
    found |= {"environ": spec.get("environ"), "mounts": _mounts(spec.get("mounts"), "spec.mounts")}
    found |= {"params": parameters, "cluster_mode": said.get("mode"), "roles": roles}
    return {key: value for key, value in found.items() if value}


def _role(task: Mapping[str, Any], count: Any) -> dict[str, Any]:
    kept = {
        key: task[key] for key in ("image", "resources", "environ", "startup_command", "mounts", "shm") if key in task
    }
    return kept | {"count": count}


def _mounts(said: Any, where: str) -> list[dict[str, Any]]:
    """Return mounts of a mapping from folder to path."""
    mounts = []
    for folder, target in _mapping(said or {}, where).items():
        mounts.append({"folder": str(folder)} | ({"target": str(target)} if target else {}))
    return mounts


def _cloning(git: Mapping[str, Any], parameters: dict[str, Any]) -> str:
    """Return the command that fetches the repository; its password becomes a secret."""
    address, branch = str(git.get("repository") or ""), git.get("branch")
    target = str(_either(git, "destination_dir", "destinationDir") or _DESTINATION)
    options = ["--branch", shlex.quote(str(branch))] if branch else []
    given = git.get("credential")
    if given and address.startswith("https://"):
        user = str(_mapping(given, "spec.kernel.git.credential").get("username") or "git")
        parameters["git_token"] = {"type": "secret", "title": f"Password of {user} for the repository"}
        helper = '!f() { echo "username=$GIT_USER"; echo "password=$PARAM_GIT_TOKEN"; }; f'
        options = ["-c", shlex.quote(f"credential.helper={helper}"), *options]
        start = f"GIT_USER={shlex.quote(user)} git clone"
    else:
        start = "git clone"
    lines = [" ".join([start, *options, "--", shlex.quote(address), shlex.quote(target)])]
    if commit := git.get("commit"):
        lines.append(f"git -C {shlex.quote(target)} checkout {shlex.quote(str(commit))}")
    return "\n".join(lines)


def _either(said: Mapping[str, Any], *names: str) -> Any:
    return next((said[name] for name in names if said.get(name) is not None), None)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError("Write keys with their values.", field=where, code="invalid-document")
    return value
