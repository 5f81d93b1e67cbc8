"""The settings of an agent's pool: the part of a Kubernetes cluster that runs its kernels."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backendai.base.core.errors import UserError

_LABEL = re.compile(r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_CLASS = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
STORAGE = "BACKENDAI_KUBERNETES_STORAGE"
_FORMS = "use host=claim:NAME, host=nfs:SERVER:/PATH or host=path:/PATH, each host once, separated by commas"
PULL_POLICIES, REACHES, DNS = (
    ("IfNotPresent", "Never", "Always"),
    ("auto", "direct", "forward"),
    ("Default", "ClusterFirst"),
)


@dataclass(frozen=True, slots=True)
class PoolStorage:
    """One storage host: a volume claim of the namespace (``folder``: a path in it), an NFS server, or a path on all
    nodes of the pool."""

    claim: str = ""
    server: str = ""
    path: str = ""
    folder: str = ""

    @property
    def source(self) -> dict[str, Any]:
        """The volume in the form of a pod's spec. A pod does not start on a node that lacks the path."""
        if self.claim:
            return {"persistentVolumeClaim": {"claimName": self.claim}}
        if self.server:
            return {"nfs": {"server": self.server, "path": self.path}}
        return {"hostPath": {"path": self.path, "type": "Directory"}}


def read_storage(environ: Mapping[str, str]) -> dict[str, PoolStorage]:
    """Return the storage hosts of a pool by name. Raises UserError."""
    found: dict[str, PoolStorage] = {}
    for part in filter(None, (part.strip() for part in environ.get(STORAGE, "").split(","))):
        name, _, place = part.partition("=")
        storage = _storage_of(place)
        if storage is None or not _NAME.match(name) or name in found:
            raise UserError(f"{STORAGE} has {part!r}: {_FORMS}.", field=STORAGE)
        found[name] = storage
    return found


def _storage_of(text: str) -> PoolStorage | None:
    kind, _, place = text.partition(":")
    if kind == "claim":
        claim, _, folder = place.partition("/")
        return PoolStorage(claim=claim, folder=folder) if _NAME.match(claim) and _is_plain(folder) else None
    server, path = place.rpartition(":")[::2] if kind == "nfs" else ("", place)
    is_known = bool(server) if kind == "nfs" else kind == "path"
    return PoolStorage(server=server, path=path) if is_known and path[:1] == "/" and _is_plain(path) else None


def _is_plain(path: str) -> bool:
    return ".." not in path.split("/")


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The pool's location, and the settings of its pods. Empty: the value of kubeconfig or service account."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    nodes: Mapping[str, str] = field(default_factory=dict)  # labels of the pool's nodes
    labels: Mapping[str, str] = field(default_factory=dict)  # labels of every pod, such as Kueue's queue
    tolerations: tuple[Mapping[str, str], ...] = ()
    runtime_class: str = ""
    pull_policy: str = PULL_POLICIES[0]
    reach: str = REACHES[0]  # how the agent connects to ports of pods
    sources: tuple[str, ...] = ()  # addresses from which an agent outside of the cluster reaches pods
    dns: str = DNS[0]
    probe_image: str = ""  # an image with sh and nc for the test of network policies; empty: no test
    scratch: str = ""  # the storage class of home folders; empty: on the nodes' disks
    storage: Mapping[str, PoolStorage] = field(default_factory=dict)  # storage hosts by name
    gpu: str = "nvidia.com/gpu"  # the resource that counts the GPUs of a node
    wait_seconds: float = 0.0  # longest wait for capacity, which an autoscaler may add; 0: the default


def read_pool(environ: Mapping[str, str]) -> PoolSettings:
    """Return the settings of the pool. Raises UserError."""

    def choice(name: str, choices: tuple[str, ...]) -> str:
        chosen = environ.get(name, "") or choices[0]
        if chosen not in choices:
            raise _wrong(name, chosen, f"use {', '.join(choices)}")
        return chosen

    def name(variable: str) -> str:
        text = environ.get(variable, "")
        if text and not _NAME.match(text):
            raise _wrong(variable, text, "use a-z, 0-9 and dashes, at most 63")
        return text

    gpu = environ.get("BACKENDAI_KUBERNETES_GPU", "") or "nvidia.com/gpu"
    if "/" not in gpu or not _LABEL.match(gpu):
        raise _wrong("BACKENDAI_KUBERNETES_GPU", gpu, "use the name of a resource, nvidia.com/gpu for example")
    told = environ.get("BACKENDAI_KUBERNETES_CONFIG", "")
    if told and not told.startswith("/"):
        raise _wrong("BACKENDAI_KUBERNETES_CONFIG", told, "use a path that begins with /")
    return PoolSettings(
        kubeconfig=Path(told) if told else None,
        context=environ.get("BACKENDAI_KUBERNETES_CONTEXT", ""),
        namespace=name("BACKENDAI_KUBERNETES_NAMESPACE"),
        nodes=_pairs(environ, "BACKENDAI_KUBERNETES_NODES"),
        labels=_pairs(environ, "BACKENDAI_KUBERNETES_LABELS"),
        tolerations=_tolerations(environ.get("BACKENDAI_KUBERNETES_TOLERATIONS", "")),
        runtime_class=name("BACKENDAI_KUBERNETES_RUNTIME_CLASS"),
        pull_policy=choice("BACKENDAI_KUBERNETES_PULL_POLICY", PULL_POLICIES),
        reach=choice("BACKENDAI_KUBERNETES_REACH", REACHES),
        sources=_networks(environ.get("BACKENDAI_KUBERNETES_SOURCES", "")),
        dns=choice("BACKENDAI_KUBERNETES_DNS", DNS),
        probe_image=environ.get("BACKENDAI_KUBERNETES_PROBE_IMAGE", ""),
        scratch=_storage_class(environ.get("BACKENDAI_KUBERNETES_SCRATCH_CLASS", "")),
        storage=read_storage(environ),
        gpu=gpu,
        wait_seconds=_seconds(environ.get("BACKENDAI_KUBERNETES_WAIT", "")),
    )


def _wrong(variable: str, text: str, advice: str) -> UserError:
    return UserError(f"{variable} is {text!r}: {advice}.", field=variable)


def _pairs(environ: Mapping[str, str], variable: str) -> dict[str, str]:
    """Return the labels in ``key=value,…``. Raises UserError."""
    text = environ.get(variable, "")
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not _LABEL.match(key) or not _VALUE.match(value) or key in found:
            raise _wrong(variable, part, "use label=value, each label once, separated by commas")
        found[key] = value
    return found


def _tolerations(text: str) -> tuple[Mapping[str, str], ...]:
    """Return the tolerations in ``key[=value][:effect],…``. Raises UserError."""
    found: list[Mapping[str, str]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        pair, _, effect = part.partition(":")
        key, equals, value = pair.partition("=")
        if not _LABEL.match(key) or not _VALUE.match(value) or (effect and effect not in _EFFECTS):
            raise _wrong(
                "BACKENDAI_KUBERNETES_TOLERATIONS", part, f"use key=value:effect with the effect {', '.join(_EFFECTS)}"
            )
        one = {"key": key, "operator": "Equal" if equals else "Exists"}
        found.append(one | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {}))
    return tuple(found)


def _networks(text: str) -> tuple[str, ...]:
    """Return the addresses or networks in a list separated by commas. Raises UserError."""
    found = tuple(filter(None, (part.strip() for part in text.split(","))))
    for part in found:
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError as error:
            raise _wrong(
                "BACKENDAI_KUBERNETES_SOURCES", part, "use addresses such as 192.0.2.7 or 192.0.2.0/24"
            ) from error
    return found


def _storage_class(text: str) -> str:
    if text and not _CLASS.match(text):
        raise _wrong("BACKENDAI_KUBERNETES_SCRATCH_CLASS", text, "use the name of a storage class")
    return text


def _seconds(text: str) -> float:
    if not text:
        return 0.0
    if not (text.isascii() and text.isdigit()) or int(text) > 3600:
        raise _wrong("BACKENDAI_KUBERNETES_WAIT", text, "use whole seconds, 0 to 3600")
    return float(text)
