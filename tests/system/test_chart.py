"""The chart as administrators install it: one pod with portal and agent, whose sessions are pods beside it.

Its containers have the files of this machine instead of the image.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from backendai.base.core.version import VERSION
from tests.agent.images import TINY_IMAGE
from tests.agent.kubernetes_bed import MANIFEST, bed, ensure_bed, kubectl
from tests.patience import until
from tests.system.client import Client
from tests.system.images import TINY
from tests.system.platform import ROOT

CHART, HELM = ROOT / "deploy/helm/backendai", Path(sys.executable).parent / "helm"
SMALL = {"cpu": "0.1", "mem": "32m"}
EVERYTHING = ("ingress.enabled=true", "postgresql.enabled=true", "folders.enabled=true")
# What the image of an installation has, its containers have from this machine.
FOLDERS = ("/usr", "/lib", "/lib64", "/etc/ssl", sys.base_prefix, sys.prefix, str(ROOT))

pytestmark = pytest.mark.skipif(not HELM.exists(), reason="helm-binary has no program for this machine")


def rendered(*values: str, name: str = "test") -> list[dict[str, Any]]:
    """Return the objects of the chart with these values."""
    chosen = [word for value in values for word in ("--set", value)]
    done = subprocess.run([HELM, "template", name, CHART, "-n", name, *chosen], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.style
@pytest.mark.parametrize("values", [(), EVERYTHING], ids=["usual", "everything"])
def test_the_chart_has_no_fault(values: tuple[str, ...]) -> None:
    chosen = [word for value in values for word in ("--set", value)]
    done = subprocess.run([HELM, "lint", "--strict", CHART, *chosen], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (portal,) = (one for one in rendered(*values) if one["kind"] == "Deployment")
    images = {one["image"] for one in portal["spec"]["template"]["spec"]["containers"]}
    assert images == {f"backendai-portal:{VERSION}"}


@pytest.mark.style
def test_its_agent_has_the_rights_of_the_manifest() -> None:
    def rules(objects: list[dict[str, Any]]) -> list[Any]:
        return [one["rules"] for one in objects if one["kind"] in ("Role", "ClusterRole")]

    manifest = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert sorted(rules(rendered()), key=len) == sorted(rules(manifest), key=len)


@pytest.fixture
def name(tmp_path: Path, tiny_image: None) -> Iterator[str]:
    """The namespace and release of a chart that runs."""
    ensure_bed()
    if TINY not in bed("docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split():
        bed("load", TINY)
    name = f"test-{uuid4().hex[:8]}"
    for folder in (tmp_path, tmp_path / "data"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)  # volumes of a path have no owner
    kubectl("create", "namespace", name)
    try:
        objects = [with_own_files(one) for one in rendered(name=name)]
        kubectl("-n", name, "apply", "-f", "-", text=yaml.safe_dump_all([volume(name, tmp_path / "data"), *objects]))
        kubectl("-n", name, "rollout", "status", f"deployment/{name}", "--timeout=180s")
        yield name
    finally:
        for pod in json.loads(kubectl("-n", name, "get", "pods", "-o", "json"))["items"]:
            kubectl("-n", name, "patch", "pod", pod["metadata"]["name"], "-p", '{"metadata":{"finalizers":null}}')
        kubectl("delete", "namespace", name)
        kubectl("delete", "persistentvolume", name, "--ignore-not-found")
        for kind in ("clusterrolebinding", "clusterrole"):
            kubectl("delete", kind, f"{name}-{name}-nodes", "--ignore-not-found")


def with_own_files(one: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the image and the files of this machine in its containers."""
    if one["kind"] != "Deployment":
        return one
    pod = one["spec"]["template"]["spec"]
    for number, folder in enumerate(dict.fromkeys(FOLDERS)):
        pod["volumes"].append({"name": f"f{number}", "hostPath": {"path": str(Path(folder).resolve())}})
    for container in (*pod["initContainers"], *pod["containers"]):
        container |= {"image": TINY_IMAGE, "workingDir": str(ROOT)}
        container["command"] = [
            sys.executable if word == "python" else word.replace(" python ", f" {sys.executable} ")
            for word in container["command"]
        ]
        container["env"].append({"name": "HOME", "value": "/data"})
        container["volumeMounts"] += [
            {"name": f"f{number}", "mountPath": folder, "readOnly": True}
            for number, folder in enumerate(dict.fromkeys(FOLDERS))
        ]
        if probe := container.get("livenessProbe", {}).get("exec"):
            probe["command"] = [sys.executable, *probe["command"][1:]]
    return one


def volume(name: str, folder: Path) -> dict[str, Any]:
    claim = {"namespace": name, "name": f"{name}-data"}
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim}
    spec["hostPath"] = {"path": str(folder)}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def pods_of(name: str) -> list[dict[str, Any]]:
    return list(json.loads(kubectl("-n", name, "get", "pods", "-o", "json"))["items"])


@pytest.mark.system
@pytest.mark.kubernetes
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_a_session_of_the_chart_runs_as_a_pod_and_the_agent_alone_may_create_pods(name: str) -> None:
    def inside(*command: str, container: str = "portal") -> str:
        return kubectl("-n", name, "exec", f"deployment/{name}", "-c", container, "--", *command)

    token = inside(sys.executable, "manage.py", "create_token", "admin@example.com").split()[-1]
    inside(sys.executable, "-m", "tests.system.prepare_data", f"tiny={TINY}")
    (portal,) = pods_of(name)
    client = Client(f"http://{portal['status']['podIP']}:8080", token)
    until(lambda: [one["status"] for one in client.agents()] == ["ALIVE"], 60, "the agent has joined")
    session = client.wait_until_running(client.launch(resources=SMALL)["id"], 60)
    assert len(pods_of(name)) == 2
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b", seconds=30)
    client.end(session["id"])
    until(lambda: len(pods_of(name)) == 1, 30, "no pod of the session is left")
    secrets = "ls /var/run/secrets/kubernetes.io 2>/dev/null || echo none"
    assert "none" in inside("sh", "-c", secrets) and "serviceaccount" in inside("sh", "-c", secrets, container="agent")
    assert "none" in inside("sh", "-c", "cat /data/secrets.json 2>/dev/null || echo none", container="agent")
