"""The network policies of a pool, the trial of them, and the names in a session, by a scripted API."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backendai.agent.backends.kubernetes import cluster as kubernetes_cluster
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.settings.kubernetes import PoolSettings
from tests.agent.kubernetes_fake import Cluster
from tests.agent.kubernetes_paper import backend, cluster, name_of
from tests.agent.specs import make_spec
from tests.patience import patient, until

__all__ = ["backend", "cluster"]  # fixtures


def policies_of(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {name: one for (kind, name), one in cluster.objects.items() if kind == "networkpolicies"}


def test_deployments_with_one_namespace_and_name_keep_policies_of_their_own(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    other = KubernetesBackend(tmp_path, backend.api.access, PoolSettings(), deployment="other", agent="n1")
    for one in (backend, other, backend):
        one.setup()
    made = policies_of(cluster)
    chosen = [one["spec"]["podSelector"]["matchLabels"]["ai.backend/deployment"] for one in made.values()]
    assert sorted(chosen) == ["other", "test"]
    other.close()


def test_a_policy_keeps_kernels_off_the_api_in_both_families_and_lets_an_outside_agent_in(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKENDAI_SHIELDED", "198.51.100.0/24,2001:db8::1")
    pool = PoolSettings(reach="direct", sources=("203.0.113.7",))
    outside = KubernetesBackend(tmp_path, backend.api.access, pool, deployment="test", agent="n2")
    outside.setup()
    (policy,) = (one["spec"] for one in policies_of(cluster).values())
    v4, v6 = (way["ipBlock"] for way in policy["egress"][0]["to"])
    assert (v4["cidr"], v6["cidr"]) == ("0.0.0.0/0", "::/0")
    assert {"169.254.0.0/16", "192.0.2.9/32", "198.51.100.0/24"} == set(v4["except"])
    assert {"fe80::/10", "fd00:ec2::/32", "2001:db8::1/128"} == set(v6["except"])
    agents = {"podSelector": {"matchLabels": {"ai.backend/part": "agent"}}}
    assert policy["ingress"] == [{"from": [agents, {"ipBlock": {"cidr": "203.0.113.7/32"}}]}]
    outside.close()


def test_policies_are_changed_and_removed_only_where_needed(cluster: Cluster, backend: KubernetesBackend) -> None:
    session = str(uuid4())
    old = {"metadata": {"name": "backendai-n1", "labels": {**backend._ours.labels(), "ai.backend/part": "policy"}}}
    cluster.objects["networkpolicies", "backendai-n1"] = old
    backend.setup()
    (own,) = (name for name in policies_of(cluster) if name != "backendai-n1")
    backend._policies.ensure_for(session)
    backend.sweep(set())
    assert set(policies_of(cluster)) == {own, f"backendai-{session}"}, "its first pod may not be there yet"
    backend._policies._made_at.clear()
    backend.sweep(set())
    assert set(policies_of(cluster)) == {own}
    before = len(cluster.asked)
    backend.sweep(set())
    assert {method for method, _ in cluster.asked[before:]} == {"GET"}


def test_a_pod_that_hangs_holds_up_the_names_of_its_own_session_only(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, written = threading.Event(), list[str]()
    stuck, well = (make_spec(cluster_size=2, session_id=uuid4()) for _ in range(2))

    def output_of(api: Any, pod: str, command: list[str]) -> tuple[bytes, int]:
        if pod == name_of(stuck):
            hangs.wait(patient(20))
        written.append(pod)
        return b"", 0

    monkeypatch.setattr(kubernetes_cluster, "output_of", output_of)
    mate = stuck.model_copy(update={"kernel_id": uuid4()})
    threads = [threading.Thread(target=backend.start, args=(one,), daemon=True) for one in (stuck, mate)]
    for thread in threads:
        thread.start()
    until(lambda: name_of(mate) in written)
    for one in (well, well.model_copy(update={"kernel_id": uuid4()})):
        backend.start(one)
    backend.sweep({one.kernel_id for one in (stuck, mate, well)})
    assert name_of(well) in written and name_of(stuck) not in written
    hangs.set()
    for thread in threads:
        thread.join(patient(10))
    assert name_of(stuck) in written


@pytest.mark.parametrize(("reaches", "code"), [((0, 1), []), ((0, 0), ["network-open"]), ((1, 1), ["network-untried"])])
def test_a_trial_tells_whether_the_network_keeps_sessions_apart(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path, reaches: tuple[int, int], code: list[str]
) -> None:
    """``reaches``: the exit codes of the pod of the same session and of the stranger's."""
    pool = PoolSettings(probe_image="busybox")
    tried = KubernetesBackend(tmp_path, backend.api.access, pool, deployment="test", agent="n1")
    tried.setup()
    ends = dict(zip(("friend", "stranger"), reaches, strict=True))

    def pods() -> dict[str, str]:
        return {one["metadata"]["name"].rpartition("-")[2]: one["metadata"]["name"] for one in cluster.pods()}

    until(lambda: ends.keys() <= pods().keys())
    for role, exit_code in ends.items():
        cluster.end(pods()[role], exitCode=exit_code, reason="Completed")
    until(lambda: tried._probe.verdict and not cluster.pods())
    told = [note.code for note in tried.notes()]
    assert [one for one in told if one.startswith("network-")] == code
    assert tried.kernels() == []
    tried.close()
