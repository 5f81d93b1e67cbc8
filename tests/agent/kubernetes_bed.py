"""A real Kubernetes for tests, where ``bin/kubernetes-bed build`` was run: a namespace with the rights of the manifest
for one agent, and nothing more."""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest
import yaml
from docker import APIClient

from tests.agent.images import ensure_python_image, ensure_service_image, ensure_tiny_image, ensure_tmux_image
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]
BED, MANIFEST = ROOT / "bin/kubernetes-bed", ROOT / "kubernetes-agent.yaml"
_RIGHTS = ("ServiceAccount", "Role", "RoleBinding")


def bed(*words: str, text: str | None = None) -> str:
    """Return what a command of the bed prints."""
    done = subprocess.run([BED, *words], input=text, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def ensure_bed() -> None:
    """Start the bed and give it the test images; a machine that has not built it skips, visibly. A bed that tests have
    started is ended with the last test process that uses it."""
    kubeconfig = Path(bed("kubeconfig").strip())
    if not (kubeconfig.parents[1] / "bin/bed").exists():
        pytest.skip("Kubernetes is not built: run bin/kubernetes-bed build (3 to 8 minutes, once)")
    if os.getuid() != 0:
        pytest.skip("only root can start the Kubernetes of bin/kubernetes-bed")
    _join(kubeconfig.parents[1])
    client = APIClient()
    try:
        wanted = {
            make(client) for make in (ensure_tiny_image, ensure_tmux_image, ensure_service_image, ensure_python_image)
        }
    finally:
        client.close()
    here = set(bed("docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split())
    if wanted - here:
        bed("load", *sorted(wanted - here))


@cache
def _join(folder: Path) -> None:
    """Start the bed, or share the one that runs, until this process ends."""
    users, mark = (folder / "tests.lock").open("w"), folder / "started-by-tests"
    fcntl.flock(users, fcntl.LOCK_SH)
    with (folder / "starting.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not (folder / "run/pid").exists():
            mark.touch()
        bed("up")
    atexit.register(_leave, users, mark)


def _leave(users: IO[str], mark: Path) -> None:
    fcntl.flock(users, fcntl.LOCK_UN)
    with contextlib.suppress(BlockingIOError):  # other tests use it, and end it
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if mark.exists():
            bed("down")
            mark.unlink()


def kubectl(*words: str, text: str | None = None) -> str:
    return bed("kubectl", *words, text=text)


@contextmanager
def namespace(*, nodes: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give a new namespace and a kubeconfig with the rights of the manifest there; ``nodes``: it may look at nodes."""
    name = f"test-{uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    rights = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] in _RIGHTS]
    kubectl("-n", name, "apply", "-f", "-", text=yaml.safe_dump_all(rights))
    if nodes:
        grant = ("create", "clusterrolebinding", name, "--clusterrole=backendai-agent-nodes")
        roles = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "ClusterRole"]
        kubectl("apply", "-f", "-", text=yaml.safe_dump_all(roles))
        kubectl(*grant, f"--serviceaccount={name}:backendai-agent")
    try:
        yield name, _kubeconfig(name)
    finally:
        if nodes:
            kubectl("delete", "clusterrolebinding", name)
        for pod in json.loads(kubectl("-n", name, "get", "pods", "-o", "json"))["items"]:
            kubectl("-n", name, "patch", "pod", pod["metadata"]["name"], "-p", '{"metadata":{"finalizers":null}}')
        kubectl("delete", "namespace", name, "--wait=false")


def _kubeconfig(name: str) -> dict[str, Any]:
    administrator = yaml.safe_load(Path(bed("kubeconfig").strip()).read_text())
    return {
        "current-context": "agent",
        "clusters": administrator["clusters"],
        "contexts": [{"name": "agent", "context": {"cluster": "bed", "user": "agent", "namespace": name}}],
        "users": [{"name": "agent", "user": {"token": _token(name)}}],
    }


def _token(name: str) -> str:
    deadline = time.monotonic() + patient(20)
    while time.monotonic() < deadline:
        found = json.loads(kubectl("-n", name, "get", "secrets", "-o", "json"))["items"]
        for secret in found:
            if (secret["metadata"].get("annotations") or {}).get(
                "kubernetes.io/service-account.name"
            ) == "backendai-agent":
                return base64.b64decode(secret["data"]["token"]).decode()
        time.sleep(0.2)
    raise AssertionError("the service account got no token")
