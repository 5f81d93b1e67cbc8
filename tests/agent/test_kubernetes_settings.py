"""What a pool is told: settings, quantities, kubeconfigs and the doctor's look at them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.pool import thousandths
from backendai.agent.settings.kubernetes import read_pool
from backendai.base.core.errors import UserError
from backendai.ops.doctor.kubernetes import kubernetes
from tests.agent.kubernetes_fake import Cluster, serving
from tests.agent.kubernetes_paper import cluster

__all__ = ["cluster"]  # a fixture


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BACKENDAI_KUBERNETES_NAMESPACE", "Not A Name"),
        ("BACKENDAI_KUBERNETES_NODES", "pool"),
        ("BACKENDAI_KUBERNETES_NODES", "pool=a,pool=b"),
        ("BACKENDAI_KUBERNETES_TOLERATIONS", "dedicated=lab:Sometimes"),
        ("BACKENDAI_KUBERNETES_PULL_POLICY", "sometimes"),
        ("BACKENDAI_KUBERNETES_CONFIG", "relative/path"),
        ("BACKENDAI_KUBERNETES_GPU", "gpu"),
        ("BACKENDAI_KUBERNETES_WAIT", "5m"),
        ("BACKENDAI_KUBERNETES_SOURCES", "gateway"),
        ("BACKENDAI_KUBERNETES_STORAGE", "home"),
        ("BACKENDAI_KUBERNETES_STORAGE", "home=claim:Not_A_Claim"),
        ("BACKENDAI_KUBERNETES_STORAGE", "home=nfs:/export"),
        ("BACKENDAI_KUBERNETES_STORAGE", "home=path:data"),
        ("BACKENDAI_KUBERNETES_STORAGE", "home=path:/data/../etc"),
        ("BACKENDAI_KUBERNETES_STORAGE", "home=claim:a,home=claim:b"),
    ],
)
def test_a_wrong_setting_names_itself(name: str, text: str) -> None:
    with pytest.raises(UserError) as error:
        read_pool({name: text})
    assert name in error.value.message and error.value.field == name


def test_settings_of_a_pool_are_read() -> None:
    pool = read_pool(
        {
            "BACKENDAI_KUBERNETES_NODES": "pool=gpu, zone=a",
            "BACKENDAI_KUBERNETES_TOLERATIONS": "dedicated=lab:NoSchedule,spot",
            "BACKENDAI_KUBERNETES_WAIT": "300",
            "BACKENDAI_KUBERNETES_STORAGE": "home=claim:shared/lab, data=nfs:[2001:db8::1]:/export,local=path:/srv",
        }
    )
    assert {name: one.source for name, one in pool.storage.items()} == {
        "home": {"persistentVolumeClaim": {"claimName": "shared"}},
        "data": {"nfs": {"server": "[2001:db8::1]", "path": "/export"}},
        "local": {"hostPath": {"path": "/srv", "type": "Directory"}},
    }
    assert pool.storage["home"].folder == "lab"
    assert (pool.nodes, pool.wait_seconds) == ({"pool": "gpu", "zone": "a"}, 300.0)
    assert pool.tolerations == (
        {"key": "dedicated", "operator": "Equal", "value": "lab", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    )


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1900m", 1900), ("2", 2000), ("16Gi", 16 * 2**30 * 1000), ("1e3", 10**6), ("500k", 5 * 10**8), ("100n", 0)],
)
def test_quantities_are_read(text: str, amount: int) -> None:
    assert thousandths(text) == amount


@pytest.mark.parametrize("text", ["", "much", "1.2.3", "Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="amount"):
        thousandths(text)


def test_a_kubeconfig_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    for content in ("{", "[]", "current-context: lab", "contexts: [{name: x}]\ncurrent-context: x"):
        (tmp_path / "config").write_text(content)
        with pytest.raises(BackendError) as error:
            find_access(tmp_path / "config")
        assert str(tmp_path / "config") in error.value.message
    with pytest.raises(BackendError) as error:
        find_access(tmp_path / "none")
    assert "cannot be read" in error.value.message


def test_a_program_of_the_kubeconfig_gives_the_token(tmp_path: Path) -> None:
    program = tmp_path / "token"
    program.write_text(
        """#!/bin/sh\necho '{"status": {"token": "t0k3n", "expirationTimestamp": "2099-01-01T00:00:00Z"}}'\n"""
    )
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./token"}}
    said = {
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9/"}}],
        "users": [{"name": "u", "user": user}],
    }
    (tmp_path / "config").write_text(json.dumps(said))
    access = find_access(tmp_path / "config")
    assert (access.server, access.namespace, access.inside) == ("http://127.0.0.1:9", "mine", False)
    assert access.headers() == {"Authorization": "Bearer t0k3n"}


def test_the_doctor_names_the_rights_that_are_missing(cluster: Cluster, tmp_path: Path) -> None:
    with serving(cluster) as address:
        said = {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(json.dumps(said))
        environ = {
            "BACKENDAI_AGENT_BACKEND": "kubernetes",
            "BACKENDAI_KUBERNETES_CONFIG": str(tmp_path / "config"),
            "BACKENDAI_AGENT_DATA": str(tmp_path),
        }
        assert [one.name for one in kubernetes(environ)] == ["kubernetes"]
        cluster.denied = {("create", "pods"), ("get", "persistentvolumeclaims"), ("list", "nodes")}
        found = {one.name: one.message for one in kubernetes(environ)}
    assert "create pods" in found["kubernetes rights"] and "get persistentvolumeclaims" in found["kubernetes rights"]
    assert "kubernetes nodes" in found
    assert kubernetes({}) == []
