"""Builds the bodies of a kernel's pod and of the secret with its files."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import SH, TOOLS
from backendai.agent.backends.kubernetes.api.names import (
    CLUSTER,
    FINALIZER,
    IMAGE,
    LIMIT,
    MAIN,
    PART,
    AgentIdentity,
    kernel_labels,
    pod_name,
)
from backendai.agent.backends.shared.authorities import INSIDE as AUTHORITIES
from backendai.agent.backends.shared.authorities import authority_environ, write_authorities
from backendai.agent.backends.shared.home import home_files, main_command
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.core.slots import MILLI, Slots
from backendai.base.paths.mount_targets import HOME as WORKDIR
from backendai.base.paths.mount_targets import below_home
from backendai.base.wire.messages import KernelSpec

USER = 1000
FILES = "/run/backendai/home"  # mount point of the secret with the home's files
HOSTS = "/etc/hosts"
_NO_RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ALL_ARE_HERE, SOME_ARE_HERE = "# kernels of this session", "# kernels of this session until now"
_ENVIRON = {"HOME": WORKDIR, "LANG": "C.UTF-8", "TERM": "xterm"}
_FILL = f'/bin/sh {FILES}/fill "$0"; exec "$@"'
_LAYER_BYTES = 64 * 2**20  # for the log and the runtime's own files, in addition to the scratch limit
# Programs of a session need the other kernels' names, which the agent writes when all kernels have an address.
# A kernel that waits for this one has none yet, hence the time limit.
_MEET = f"""
tries=0 theirs=$PATH
{TOOLS}
while [ $tries -lt 300 ] && ! grep -q '^{ALL_ARE_HERE}$' {HOSTS}; do sleep 0.2; tries=$((tries + 1)); done
PATH=$theirs
[ $tries -lt 300 ] || echo "Not all kernels of this session have started within a minute: their names come later." >&2
exec "$@"
""".strip()
_OWN_HOSTS = f"{TOOLS}; cat {HOSTS} >/backendai-hosts/hosts; chmod 644 /backendai-hosts/hosts"


@dataclass(frozen=True, slots=True)
class PodFolder:
    """A folder in a pod. ``source``: the volume of its storage host in the API's format. ``path``: within the
    volume."""

    host: str
    source: Mapping[str, Any]
    path: str
    target: str
    read_only: bool


def pod_body(
    spec: KernelSpec,
    pool: PoolSettings,
    ours: AgentIdentity,
    *,
    folders: Sequence[PodFolder] = (),
    user: int = USER,
    pull_secret: str = "",
    node: str = "",
    nodes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a kernel's pod. ``pull_secret``: the secret with the registry's account. ``node``: the preferred node,
    which has the image. ``nodes``: the labels of allowed nodes."""
    name = pod_name(spec.kernel_id)
    has_files = bool(secret_data(spec))
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**pool.labels, **ours.labels(), **kernel_labels(spec), PART: "kernel"},
            "annotations": _notes(spec),
            "finalizers": [FINALIZER],
        },
        "spec": {
            **_pod_options(spec, pool, user),
            "nodeSelector": dict(pool.nodes if nodes is None else nodes),
            "containers": [_container(spec, pool, folders, has_files)],
            "volumes": _volumes(spec, pool, name, folders, has_files),
        },
    }
    if spec.cluster_size > 1:
        body["spec"]["initContainers"] = [_hosts_container(spec, pool)]
    if pull_secret:
        body["spec"]["imagePullSecrets"] = [{"name": pull_secret}]
    if node:
        body["spec"]["affinity"] = {"nodeAffinity": _prefer(node)}
    return body


def helper_pod(
    name: str,
    pool: PoolSettings,
    labels: Mapping[str, str],
    main: Mapping[str, Any],
    *,
    nodes: Mapping[str, str],
    pull_secret: str = "",
) -> dict[str, Any]:
    """Return a small pod of the agent's own, which ends soon. ``main``: what its container runs."""
    few = {"cpu": "1m", "memory": "16Mi"}
    container = {"name": MAIN, **main, "resources": {"requests": few, "limits": few}, "securityContext": _NO_RIGHTS}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": dict(nodes),
        "tolerations": [dict(one) for one in pool.tolerations],
        "securityContext": {"runAsUser": USER, "runAsNonRoot": True},
        "containers": [container],
        **({"imagePullSecrets": [{"name": pull_secret}]} if pull_secret else {}),
    }
    metadata = {"name": name, "labels": {**pool.labels, **labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _notes(spec: KernelSpec) -> dict[str, str]:
    memory = Slots.parse(spec.slots)["mem"] // MILLI
    return {IMAGE: spec.exact_image, LIMIT: str(memory), CLUSTER: str(spec.cluster_size)}


def secret_body(spec: KernelSpec, ours: AgentIdentity) -> dict[str, Any]:
    """Return the secret with the files of the kernel's home and its certificate authorities."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": pod_name(spec.kernel_id), "labels": ours.labels() | kernel_labels(spec)},
        "stringData": secret_data(spec),
    }


def secret_data(spec: KernelSpec) -> dict[str, str]:
    """Return the files by key, with the script that copies them into the home; empty if there are none."""
    data: dict[str, str] = {}
    folders = [inside for mount in spec.mounts if (inside := below_home(mount.target))]
    lines = [TOOLS, 'cd "$1" || exit']
    for number, file in enumerate(home_files(spec)):
        if _is_below(file.path, folders):  # a mounted folder would hide the file
            continue
        data[f"f{number}"] = file.content
        lines += _placing(file.path, file.mode, f"{FILES}/f{number}")
    if spec.authorities:
        with tempfile.TemporaryDirectory() as folder:
            write_authorities(Path(folder), spec)
            data |= {path.name: path.read_text() for path in Path(folder).iterdir()}
    return {**data, "fill": "\n".join(lines) + "\n"} if data else {}


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _placing(path: str, mode: int, source: str) -> list[str]:
    parents = [str(parent) for parent in reversed(Path(path).parents) if str(parent) != "."]
    made = [
        f"[ -d {shlex.quote(one)} ] || mkdir -m {'700' if one == '.ssh' else '755'} {shlex.quote(one)}"
        for one in parents
    ]
    quoted = shlex.quote(path)
    return [*made, f"[ -e {quoted} ] || {{ (umask 077; cat {source} >{quoted}); chmod {mode:o} {quoted}; }}"]


def _pod_options(spec: KernelSpec, pool: PoolSettings, user: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "restartPolicy": "Never",
        "hostname": spec.hostname,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # the pause process reaps orphans, and SIGTERM ends processes without a handler
        "terminationGracePeriodSeconds": 5,
        "dnsPolicy": pool.dns,
        "tolerations": [dict(one) for one in pool.tolerations],
        "securityContext": {
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return options | ({"runtimeClassName": pool.runtime_class} if pool.runtime_class else {})


def _container(spec: KernelSpec, pool: PoolSettings, folders: Sequence[PodFolder], has_files: bool) -> dict[str, Any]:
    trusted = authority_environ(spec, AUTHORITIES)
    environ = {**_ENVIRON, **trusted, **spec.environ}
    amounts = _amounts(spec, pool)
    limits = dict(amounts)
    if spec.scratch_bytes:  # request 0, as a limit without a request would be requested in full
        limits["ephemeral-storage"] = str(spec.scratch_bytes + _LAYER_BYTES)
        amounts["ephemeral-storage"] = "0"
    return {
        "name": MAIN,
        "image": spec.exact_image,
        "imagePullPolicy": pool.pull_policy,
        "command": _command(spec, has_files),
        "workingDir": spec.start_in or WORKDIR,
        "env": [{"name": name, "value": value} for name, value in environ.items()],
        "resources": {"requests": amounts, "limits": limits},
        "securityContext": _NO_RIGHTS,
        "volumeMounts": [*_own_mounts(spec, has_files), *_folder_mounts(folders)],
    }


def _command(spec: KernelSpec, has_files: bool) -> list[str]:
    command = main_command(spec, WORKDIR)
    if spec.cluster_size > 1:
        command = [SH, "-c", _MEET, "meet", *command]
    return _literally([SH, "-c", _FILL, WORKDIR, *command] if has_files else command)


def _literally(words: Sequence[str]) -> list[str]:
    """Return the words escaped, so that the cluster replaces no ``$(NAME)`` in them."""
    return [word.replace("$(", "$$(") for word in words]


def _amounts(spec: KernelSpec, pool: PoolSettings) -> dict[str, str]:
    """Return the resources, used as requests and limits: pods with equal ones are evicted last."""
    slots = Slots.parse(spec.slots)
    amounts = {"cpu": f"{slots['cpu']}m", "memory": str(slots["mem"] // MILLI)}
    gpus = slots.get("cuda.device", 0) // MILLI
    return amounts | ({pool.gpu: str(gpus)} if gpus else {})


def _own_mounts(spec: KernelSpec, has_files: bool) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "scratch", "mountPath": WORKDIR, "subPath": "home"},
        {"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108 - of the container
        {"name": "scratch", "mountPath": "/var/tmp", "subPath": "tmp"},  # noqa: S108 - of the container
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the container
    ]
    if has_files:
        mounts.append({"name": "files", "mountPath": FILES, "readOnly": True})
    if spec.authorities:
        mounts.append({"name": "authorities", "mountPath": AUTHORITIES, "readOnly": True})
    if spec.cluster_size > 1:
        mounts.append({"name": "hosts", "mountPath": HOSTS, "subPath": "hosts"})
    return mounts


def _folder_mounts(folders: Sequence[PodFolder]) -> list[dict[str, Any]]:
    return [
        {"name": _volume_of(one), "mountPath": one.target, "subPath": one.path, "readOnly": one.read_only}
        for one in sorted(folders, key=lambda one: one.target)  # parents before mounts below them
    ]


def _volume_of(folder: PodFolder) -> str:
    return f"storage-{folder.host}"[:63].rstrip("-")


def _scratch(spec: KernelSpec, pool: PoolSettings) -> dict[str, Any]:
    """Return the home's volume: on the node's disk, where exceeding the limit evicts the pod, or a volume of its
    own."""
    if not pool.scratch:
        return {"emptyDir": {"sizeLimit": str(spec.scratch_bytes)} if spec.scratch_bytes else {}}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": pool.scratch,
        "resources": {"requests": {"storage": str(spec.scratch_bytes)}},
    }
    return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def _volumes(
    spec: KernelSpec, pool: PoolSettings, name: str, folders: Sequence[PodFolder], has_files: bool
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "scratch", **_scratch(spec, pool)},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(spec.shm_bytes)}},
    ]
    if has_files:
        found.append({"name": "files", "secret": {"secretName": name, "defaultMode": 0o444}})
    if spec.authorities:
        items = [{"key": key, "path": key} for key in ("all.pem", "site.pem")]
        found.append({"name": "authorities", "secret": {"secretName": name, "defaultMode": 0o444, "items": items}})
    if spec.cluster_size > 1:
        found.append({"name": "hosts", "emptyDir": {"sizeLimit": "1Mi"}})
    hosts = {_volume_of(one): one.source for one in folders}
    return [*found, *({"name": volume, **source} for volume, source in hosts.items())]


def _hosts_container(spec: KernelSpec, pool: PoolSettings) -> dict[str, Any]:
    """Return an init container that creates an /etc/hosts that the session's user can change; the pod's own is
    root's."""
    return {
        "name": "hosts",
        "image": spec.exact_image,
        "imagePullPolicy": pool.pull_policy,
        "command": [SH, "-c", _OWN_HOSTS],
        "resources": {"requests": _amounts(spec, pool), "limits": _amounts(spec, pool)},
        "securityContext": _NO_RIGHTS,
        "volumeMounts": [{"name": "hosts", "mountPath": "/backendai-hosts"}],
    }


def _prefer(node: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    preference = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}
