"""An agent inside the cluster, installed by its manifest as administrators apply it: rights, identity and gateway.

Its container has the files of this machine, or is the image in ``BACKENDAI_TEST_PORTAL_IMAGE``, which ``docker build``
has made of the Dockerfile: then the manifest is used with its own command and probe.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests.agent.images import TINY_IMAGE
from tests.agent.kubernetes_bed import MANIFEST, bed, ensure_bed, kubectl
from tests.patience import until
from tests.system.images import TINY
from tests.system.platform import ROOT, Platform

pytestmark = [
    pytest.mark.system,
    pytest.mark.kubernetes,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("tiny_image"),
]
HERE = "10.214.1.1"  # this machine, as pods of the bed see it
PORTAL_IMAGE = os.environ.get("BACKENDAI_TEST_PORTAL_IMAGE", "")
SMALL = {"cpu": "0.1", "mem": "32m"}
# What the image of an installation has, its container has from this machine.
FOLDERS = ("/usr", "/lib", "/lib64", "/etc/ssl", sys.base_prefix, sys.prefix, str(ROOT))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    """The platform with no agent beside it, where pods reach it."""
    ensure_bed()
    here = bed("docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split()
    if missing := {TINY, PORTAL_IMAGE} - {"", *here}:
        bed("load", *missing)
    with Platform(tmp_path_factory.mktemp("portal"), host=HERE, agents=0) as platform:
        yield platform


@pytest.fixture
def name(platform: Platform, tmp_path: Path) -> Iterator[str]:
    """The namespace of an agent that has joined."""
    name = f"test-{uuid4().hex[:8]}"
    token = platform.manage("create_join_token").stdout.split()[-1]
    tmp_path.chmod(0o755)
    (tmp_path / "identity").mkdir()
    (tmp_path / "identity").chmod(0o777)  # volumes of a path have no owner
    kubectl("create", "namespace", name)
    try:
        kubectl("-n", name, "create", "secret", "generic", "backendai-agent", f"--from-literal=join-token={token}")
        objects = [adapted(one, name, platform.url) for one in yaml.safe_load_all(MANIFEST.read_text())]
        kubectl(
            "-n", name, "apply", "-f", "-", text=yaml.safe_dump_all([volume(name, tmp_path / "identity"), *objects])
        )
        kubectl("-n", name, "rollout", "status", "deployment/backendai-agent", "--timeout=90s")
        platform.wait_for_agents(1)
        yield name
    finally:
        for pod in json.loads(kubectl("-n", name, "get", "pods", "-o", "json"))["items"]:
            kubectl("-n", name, "patch", "pod", pod["metadata"]["name"], "-p", '{"metadata":{"finalizers":null}}')
        kubectl("delete", "namespace", name)
        for kind in ("persistentvolume", "clusterrolebinding"):
            kubectl("delete", kind, name, "--ignore-not-found")


def adapted(one: dict[str, Any], name: str, url: str) -> dict[str, Any]:
    """Set what the manifest marks with "set this", and the container's image or files."""
    if one["kind"] == "ClusterRoleBinding":
        one["metadata"]["name"] = name
        one["subjects"][0]["namespace"] = name
    if one["kind"] == "Service":
        one["spec"]["type"] = "ClusterIP"
    if one["kind"] == "Deployment":
        pod = one["spec"]["template"]["spec"]
        (agent,) = pod["containers"]
        told = {"BACKENDAI_PORTAL_URL": url, "BACKENDAI_GATEWAY_URL": "http://$(POD_IP):8090"}
        address = {
            "name": "POD_IP",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        }  # the bed has no Services
        for variable in agent["env"]:
            variable |= {"value": told[variable["name"]]} if variable["name"] in told else {}
        agent["env"].insert(0, address)
        probe = agent["livenessProbe"]
        probe |= {"initialDelaySeconds": 5, "periodSeconds": 5, "failureThreshold": 1}
        if PORTAL_IMAGE:
            agent |= {"image": PORTAL_IMAGE, "imagePullPolicy": "Never"}
            return one
        agent |= {"image": TINY_IMAGE, "workingDir": str(ROOT)}
        agent["command"] = [sys.executable, *agent["command"][1:]]
        probe["exec"]["command"] = [sys.executable, *probe["exec"]["command"][1:]]
        for number, folder in enumerate(dict.fromkeys(FOLDERS)):
            pod["volumes"].append({"name": f"f{number}", "hostPath": {"path": str(Path(folder).resolve())}})
            agent["volumeMounts"].append({"name": f"f{number}", "mountPath": folder, "readOnly": True})
    return one


def volume(name: str, folder: Path) -> dict[str, Any]:
    claim = {"namespace": name, "name": "backendai-agent"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim}
    spec["hostPath"] = {"path": str(folder)}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def agent_pods(name: str) -> dict[str, int]:
    """Return the agent's pods by name, with how often their container was restarted."""
    found = json.loads(kubectl("-n", name, "get", "pods", "-l", "app=backendai-agent", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["status"]["containerStatuses"][0]["restartCount"] for one in found}


def test_an_agent_of_the_manifest_runs_sessions_and_its_successor_adopts_them(platform: Platform, name: str) -> None:
    client = platform.client
    (agent,) = client.agents()
    assert (agent["name"], agent["backend"], agent["fault"]) == ("pool-1", "kubernetes", "")
    session = client.wait_until_running(client.launch(resources=SMALL)["id"], 60)
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b", seconds=30)
    kubectl("-n", name, "rollout", "restart", "deployment/backendai-agent")
    kubectl("-n", name, "rollout", "status", "deployment/backendai-agent", "--timeout=120s")
    platform.wait_for_agents(1)
    assert client.session(session["id"])["status"] == "RUNNING"
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo again-$((40+2))", r"again-42\b", seconds=30)
    assert session["name"] in client.log(session["id"])
    (ended,) = client.end(session["id"])
    assert (ended["status"], ended["status_reason"]) == ("TERMINATED", "user-requested")
    left = json.loads(kubectl("-n", name, "get", "pods", "-o", "json"))["items"]
    assert {one["metadata"]["name"] for one in left} == agent_pods(name).keys()
    until(lambda: list(agent_pods(name).values()) == [0], 10, "its probe is content")
    platform.audit()
