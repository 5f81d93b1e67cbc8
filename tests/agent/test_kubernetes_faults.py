"""The Kubernetes backend against an API that is busy, forgets, breaks off or refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backendai.agent.accelerators.pool import PoolGpus
from backendai.agent.backends import (
    kubernetes_cluster,
    kubernetes_feed,
    kubernetes_folders,
    kubernetes_pods,
    kubernetes_start,
)
from backendai.agent.backends.base import BackendError, ImageNotFound, KernelGone, StaleGeneration, StartFailed
from backendai.agent.backends.kubernetes import KubernetesBackend
from backendai.agent.backends.kubernetes_access import Access, find_access
from backendai.agent.backends.kubernetes_logs import _EXCUSE
from backendai.agent.backends.kubernetes_quantities import thousandths
from backendai.agent.kubernetes_settings import PoolSettings, read_pool
from backendai.agent.kubernetes_storage import PoolStorage
from backendai.agent.machine import Machine
from backendai.core.errors import UserError
from backendai.core.slots import Slots
from backendai.ops.doctor.kubernetes import kubernetes
from backendai.wire.mounts import MountSpec
from backendai.wire.pulls import RegistryAccess
from tests.agent.contract_tools import until
from tests.agent.kubernetes_fake import Cluster, serving
from tests.agent.specs import make_spec


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def backend(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesBackend]:
    monkeypatch.setattr(kubernetes_feed, "_LOOK_SECONDS", 0.2)
    with serving(cluster) as address:
        access = Access(address, "lab", None, lambda: "")
        backend = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1")
        yield backend
        backend.close()


def name_of(spec: Any) -> str:
    return f"krn-{spec.kernel_id}"


def test_a_busy_server_is_asked_again_after_the_pause_that_it_names(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    cluster.faults = [(429, {"Retry-After": "0"}, {}), (503, {}, {})]
    assert backend.kernels() == []
    assert len(cluster.asked) == 3


def test_a_server_that_stays_busy_is_no_verdict(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.faults = [(429, {"Retry-After": "0"}, {"message": "too many"})] * 8
    with pytest.raises(BackendError) as error:
        backend.start(make_spec())
    assert error.value.code == "engine-unreachable"
    assert not isinstance(error.value, StartFailed)


def test_no_server_is_no_verdict(backend: KubernetesBackend, tmp_path: Path) -> None:
    access = Access("http://127.0.0.1:9", "lab", None, lambda: "")
    nowhere = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1")
    for ask in (nowhere.kernels, nowhere.capacity, lambda: nowhere.ended(uuid4())):
        with pytest.raises(BackendError) as error:
            ask()
        assert not isinstance(error.value, KernelGone)
        assert error.value.code == "engine-unreachable"


def test_an_expired_watch_begins_with_a_new_list(cluster: Cluster, backend: KubernetesBackend) -> None:
    spec, told = make_spec(), list[Any]()
    backend.start(spec)

    def watch() -> None:
        while not told:
            told.extend(event.kernel_id for event in backend.watch())

    threading.Thread(target=watch, daemon=True).start()
    until(lambda: cluster.watches)
    with cluster.lock:  # it ends while nobody watches: only the next list can tell
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}}
        cluster.cut_watches(gone)
        cluster.watches.clear()
        cluster.end(name_of(spec), exitCode=3, reason="Error")
        cluster.watches = []
    until(lambda: spec.kernel_id in told or backend._feed.lists_taken > 1)
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and (ended.exit_code, ended.reason) == (3, "exited")


def test_a_start_goes_on_when_the_watch_is_cut(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.runs = False
    spec, started = make_spec(), list[Any]()
    thread = threading.Thread(target=lambda: started.append(backend.start(spec)), daemon=True)
    thread.start()
    until(lambda: cluster.pods())
    until(lambda: cluster.watches)
    cluster.cut_watches()
    running = [{"name": "main", "state": {"running": {}}}]
    cluster.change(name_of(spec), phase="Running", containerStatuses=running)
    thread.join(10)
    assert [one.adopted for one in started] == [False]


def test_a_cut_watch_is_not_hammered(cluster: Cluster, backend: KubernetesBackend) -> None:
    backend.setup()
    for _ in range(3):
        until(lambda: cluster.watches)
        cluster.cut_watches()
        until(lambda: not cluster.watches)
        if backend._feed.lists_taken >= 2:
            break
    asked = [path for _, path in cluster.asked if "watch" in path]
    assert len(asked) <= 3


def test_what_runs_on_a_silent_node_has_not_ended(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_pods, "_END_SECONDS", 0.3)
    cluster.answers_deletes = False
    spec = make_spec()
    backend.start(spec)
    with pytest.raises(BackendError) as error:
        backend.stop(spec.kernel_id, grace=0.1)
    assert "node-1" in error.value.message and not isinstance(error.value, KernelGone)
    assert backend.ended(spec.kernel_id) is None
    assert [one.running for one in backend.kernels()] == [True]
    with pytest.raises(BackendError):
        backend.remove(spec.kernel_id)
    assert cluster.pods()[0]["metadata"]["finalizers"]


def test_a_failed_pod_whose_process_still_runs_has_not_ended(cluster: Cluster, backend: KubernetesBackend) -> None:
    spec = make_spec()
    backend.start(spec)
    cluster.change(name_of(spec), phase="Failed", reason="DeadlineExceeded")
    assert backend.ended(spec.kernel_id) is None
    cluster.end(name_of(spec), exitCode=137, reason="Error")
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and (ended.exit_code, ended.reason) == (137, "pod-evicted")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}, "pod-evicted", "memory"),
        (None, "pod-deleted", "outside the platform"),
    ],
)
def test_an_end_that_the_cluster_brought_about_is_told(
    cluster: Cluster, backend: KubernetesBackend, status: dict[str, Any] | None, code: str, words: str
) -> None:
    spec = make_spec()
    backend.start(spec)
    if status is None:
        backend.api.ask("DELETE", backend.api.path("pods", name_of(spec)))
    else:
        cluster.change(name_of(spec), containerStatuses=[], **status)
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and ended.reason == code and words in ended.message
    backend.remove(spec.kernel_id)
    assert cluster.pods() == []


def test_a_deleted_pod_without_a_node_never_ran(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.runs = False
    spec = make_spec(create_timeout=0.3)
    with pytest.raises(StartFailed) as error:
        backend.start(spec)
    assert error.value.code == "create-timeout"
    assert cluster.pods() == []


def test_an_agent_starts_no_second_pod_for_one_that_another_has(cluster: Cluster, backend: KubernetesBackend) -> None:
    spec = make_spec(generation=2)
    first = backend.start(spec)
    other = KubernetesBackend(backend._logs._folder, backend.api.access, PoolSettings(), deployment="test", agent="n2")
    with pytest.raises(StartFailed) as taken:
        other.start(spec)
    assert taken.value.code == "name-taken"
    with pytest.raises(StaleGeneration):
        other.start(spec.model_copy(update={"generation": 1}))
    assert other.kernels() == []
    again = other.start(spec.model_copy(update={"generation": 3}))
    assert again.container_id != first.container_id and backend.kernels() == []
    other.close()


def test_a_late_removal_spares_the_next_generation(cluster: Cluster, backend: KubernetesBackend) -> None:
    spec = make_spec()
    backend.start(spec)
    old = dict(cluster.pods()[0], metadata=dict(cluster.pods()[0]["metadata"]))
    backend.start(spec.model_copy(update={"generation": 2}))
    backend._pods.remove(old)
    assert [(one.generation, one.running) for one in backend.kernels()] == [(2, True)]


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (403, "exceeded quota: lab, requested: cpu=2", "quota-exceeded"),
        (403, "failed quota: lab: must specify limits.memory", "quota-exceeded"),
        (422, "spec.hostname: Invalid value", "failed-to-start"),
    ],
)
def test_a_refused_pod_is_a_reason(
    cluster: Cluster, backend: KubernetesBackend, status: int, said: str, code: str
) -> None:
    backend.capacity()
    cluster.faults = [(status, {}, {"message": said, "reason": "Forbidden"})]
    with pytest.raises(StartFailed) as error:
        backend.start(make_spec())
    assert error.value.code == code and said in error.value.message


def test_a_revoked_role_is_no_verdict_but_a_fault_of_the_agent(cluster: Cluster, backend: KubernetesBackend) -> None:
    backend.capacity()
    cluster.faults = [(403, {}, {"message": "pods is forbidden", "reason": "Forbidden"})]
    with pytest.raises(BackendError) as error:
        backend.start(make_spec())
    assert not isinstance(error.value, StartFailed)
    backend.pool.look()
    cluster.faults = [(403, {}, {"message": "pods is forbidden", "reason": "Forbidden"})]
    assert "kubernetes-refused" in [note.code for note in backend.notes()]
    assert "forbidden" in backend.fault()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}, ImageNotFound),
        ({"terminated": {"reason": "ContainerCannotRun", "exitCode": 127, "message": "no sh"}}, StartFailed),
    ],
)
def test_a_pod_that_cannot_begin_is_removed(
    cluster: Cluster, backend: KubernetesBackend, state: dict[str, Any], error: type[Exception]
) -> None:
    cluster.runs = False
    spec = make_spec()

    def fail() -> None:
        until(lambda: cluster.pods())
        cluster.change(name_of(spec), containerStatuses=[{"name": "main", "state": state}])

    threading.Thread(target=fail, daemon=True).start()
    with pytest.raises(error):
        backend.start(spec)
    assert cluster.pods() == []


def test_what_the_scheduler_cannot_place_gives_its_room_back(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_start, "_ROOM_SECONDS", 0.2)
    cluster.runs = False
    spec = make_spec()

    def refuse() -> None:
        until(lambda: cluster.pods())
        words = "0/1 nodes are available: 1 Insufficient cpu."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
        cluster.change(name_of(spec), conditions=[condition])

    threading.Thread(target=refuse, daemon=True).start()
    with pytest.raises(StartFailed) as error:
        backend.start(spec)
    assert error.value.code == "unschedulable" and "Insufficient cpu" in error.value.message
    assert cluster.pods() == []


def test_capacity_comes_from_nodes_and_else_from_the_quota_and_else_from_the_settings(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    assert backend.capacity() == Slots.parse({"cpu": 4, "mem": "8g"})
    assert backend.pool.gpus() == 2
    with pytest.raises(StartFailed) as error:
        backend.start(make_spec(slots={"cpu": "5", "mem": "64m"}))
    assert error.value.code == "wider-than-any-node" and "4" in error.value.message and "5" in error.value.message
    cluster.forbidden = {"nodes"}
    told = Slots.parse({"cpu": 3, "mem": "2g"})
    access = backend.api.access
    blind = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1", told=told)
    assert blind.capacity() == told
    assert "no-node-rights" in [note.code for note in blind.notes()]
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1500m", "limits.memory": "1Gi"}}}
    cluster.objects["resourcequotas", "q"] = quota
    limited = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1", told=told)
    assert limited.capacity() == Slots.parse({"cpu": "1.5", "mem": "1g"})


def test_an_idle_agent_asks_little(cluster: Cluster, tmp_path: Path) -> None:
    """Three minutes of what the loops of an agent do, by a clock of their own."""
    now, minutes = 0.0, 3
    with serving(cluster) as address:
        access = Access(address, "lab", None, lambda: "")
        backend = KubernetesBackend(tmp_path, access, PoolSettings(), deployment="test", agent="n1", clock=lambda: now)
        backend.setup()
        until(lambda: cluster.watches)
        before = len(cluster.asked)
        for second in range(0, 60 * minutes, 5):
            now = float(second)
            backend.kernels()
            backend.pool.gpus()
            if second % 30 == 0:
                for look in (backend.capacity, backend.notes, backend.images, backend.engine, backend.fault):
                    look()
                backend.sweep(set())
        asked = [f"{method} {path}" for method, path in cluster.asked[before:]]
        backend.close()
    assert len(asked) / minutes <= 30, asked


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


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (b"a\nunable to retrieve container logs for docker://97e6", b"a\n"),
        (b"a\nrpc error: code = Unknown desc = Error: No such container: 97e6b2", b"a\n"),
        (b"rpc error: code = Unknown desc = other\n", b"rpc error: code = Unknown desc = other\n"),
        (b"No such container\nb\n", b"No such container\nb\n"),
    ],
)
def test_what_a_node_says_instead_of_a_log_is_no_log(written: bytes, kept: bytes) -> None:
    assert _EXCUSE.sub(b"", written) == kept


def test_an_image_that_a_start_missed_on_its_node_is_fetched_there(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some node has it, but not the one that the cluster chose: the next pull goes there, with a new account."""
    monkeypatch.setattr(kubernetes_start, "_PULL_SECONDS", 0.2)
    cluster.runs = False
    spec = make_spec(image="local/backendai-test:tiny")
    assert backend.has_image(spec.exact_image)

    def fetch() -> None:
        until(lambda: cluster.pods())
        with cluster.lock:
            pod = cluster.pods()[0]
            pod["spec"]["nodeName"] = "node-2"
            about = {"name": name_of(spec), "uid": pod["metadata"]["uid"]}
            event = {"metadata": {"name": "e", "labels": {}}, "involvedObject": about, "reason": "Pulling"}
            cluster.objects["events", "e"] = event
        cluster.change(name_of(spec), containerStatuses=[{"name": "main", "state": _CREATING}])

    threading.Thread(target=fetch, daemon=True).start()
    with pytest.raises(ImageNotFound):
        backend.start(spec)
    assert not backend.has_image(spec.exact_image)
    cluster.runs = True
    account = RegistryAccess(username="me", password="secret")
    backend.pull(spec.exact_image, timeout=5, progress=lambda _: None, access=account)
    asked = [json.loads(body) for path, body in cluster.bodies if path.endswith("/pods")]
    pull = next(one for one in asked if one["metadata"]["name"].startswith("pull-"))
    assert pull["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-2"}
    assert backend.has_image(spec.exact_image)
    backend.start(spec)
    assert cluster.pods()[0]["spec"]["imagePullSecrets"] == [{"name": pull["metadata"]["name"]}]


def test_a_node_that_fetches_what_was_just_fetched_elsewhere_is_waited_for(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_start, "_PULL_SECONDS", 0.1)
    spec = make_spec(create_timeout=1.0)
    backend.pull(spec.exact_image, timeout=5, progress=lambda _: None)
    cluster.runs = False
    cluster.objects["events", "e"] = {"metadata": {"name": "e"}, "reason": "Pulling"}

    def fetch() -> None:
        until(lambda: cluster.pods())
        cluster.change(name_of(spec), containerStatuses=[{"name": "main", "state": _CREATING}])

    threading.Thread(target=fetch, daemon=True).start()
    with pytest.raises(StartFailed) as error:
        backend.start(spec)
    assert error.value.code == "pull-timeout"


def test_a_pod_that_the_cluster_has_given_up_is_lost_and_not_before(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    """Its node has left the cluster: nobody will ever say that the process has ended."""
    cluster.answers_deletes = False
    spec = make_spec()
    backend.start(spec)
    backend.api.ask("DELETE", backend.api.path("pods", name_of(spec)), {"gracePeriodSeconds": 0})
    assert backend.ended(spec.kernel_id) is None, "a node that lives would say so in a moment"
    cluster.pods()[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and (ended.exit_code, ended.reason) == (None, "node-lost")
    assert "node-1" in ended.message
    assert [(one.running, one.exit_code) for one in backend.kernels()] == [(False, -1)]
    backend.remove(spec.kernel_id)
    assert cluster.pods() == []


def test_a_deletion_with_grace_on_a_silent_node_stays_unknown(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.answers_deletes = False
    spec = make_spec()
    backend.start(spec)
    backend.api.ask("DELETE", backend.api.path("pods", name_of(spec)), {"gracePeriodSeconds": 5})
    cluster.pods()[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert backend.ended(spec.kernel_id) is None
    assert [one.running for one in backend.kernels()] == [True]
    assert "pods-unconfirmed" in [note.code for note in backend.notes()]


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
            hangs.wait(20)
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
        thread.join(10)
    assert name_of(stuck) in written


_CREATING = {"waiting": {"reason": "ContainerCreating"}}


def test_folders_are_parts_of_the_volume_of_their_host_and_never_parts_of_folders(
    cluster: Cluster, backend: KubernetesBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "1 2 0:1 / /home/work/data rw - nfs a rw\n1 2 0:1 / /home/work/ref ro - nfs a rw\n"
    monkeypatch.setattr(kubernetes_folders, "output_of", lambda *_: (table.encode(), 0))
    pool = PoolSettings(storage={"home": PoolStorage(claim="shared", folder="lab")})
    backend = KubernetesBackend(tmp_path, backend.api.access, pool, deployment="test", agent="n1")
    folder, other = uuid4(), uuid4()
    shared: dict[str, Any] = {"host": "home", "folder_name": "data"}
    mine = MountSpec(folder_id=folder, target="/home/work/data", rights="edit", **shared)
    theirs = MountSpec(folder_id=other, target="/home/work/ref", rights="view", **shared)
    backend.start(make_spec(mounts=[theirs, mine]))
    pod = cluster.pods()[0]["spec"]
    mounts = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "storage-home"]
    assert [(one["mountPath"], one["readOnly"]) for one in mounts] == [(mine.target, False), (theirs.target, True)]
    assert mounts[0]["subPath"] == f"lab/{folder.hex[:2]}/{folder}/data"
    assert [one for one in pod["volumes"] if "persistentVolumeClaim" in one] == [
        {"name": "storage-home", "persistentVolumeClaim": {"claimName": "shared"}}
    ]
    for over, code in (({"sub_path": "a"}, "mount-refused"), ({"host": "other"}, "storage-missing")):
        with pytest.raises(StartFailed) as error:
            backend.start(make_spec(mounts=[mine.model_copy(update=over)]))
        assert error.value.code == code
    assert len(cluster.pods()) == 1
    table = table.replace(" ro ", " rw ")
    with pytest.raises(StartFailed) as error:
        backend.start(make_spec(mounts=[mine, theirs]))
    assert error.value.code == "mount-refused" and len(cluster.pods()) == 1, "a pod that could write is removed"
    backend.close()


def node_of(name: str, cpu: str, memory: str, gpus: str = "0", architecture: str = "amd64") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpus}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": room, "conditions": ready, "nodeInfo": {"architecture": architecture}}
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status}


def test_a_kernel_has_to_fit_into_one_node_in_everything(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.nodes = [node_of("wide", "64", "512Gi"), node_of("gpu", "8", "64Gi", "4"), node_of("small", "2", "4Gi")]
    wide, gpu = Slots.parse({"cpu": 64, "mem": "512g"}), Slots.parse({"cpu": 8, "mem": "64g", "cuda.device": 4})
    assert backend.widest() == [wide, gpu]
    for slots, words in (({"cpu": "32", "mem": "1g", "cuda.device": "1"}, "all of"), ({"cuda.device": "5"}, "5")):
        with pytest.raises(StartFailed) as error:
            backend.start(make_spec(slots=slots))
        assert error.value.code == "wider-than-any-node" and words in error.value.message
    backend.start(make_spec(slots={"cpu": "8", "mem": "1g", "cuda.device": "4"}))
    assert cluster.pods()[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_a_pool_has_one_architecture_and_its_pods_go_nowhere_else(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.nodes = [node_of("a", "8", "8Gi", architecture="arm64"), node_of("b", "4", "8Gi")]
    assert backend.architecture() == "aarch64"
    assert backend.capacity() == Slots.parse({"cpu": 8, "mem": "8g"})
    assert "amd64" in next(note.message for note in backend.notes() if note.code == "node-away")
    backend.start(make_spec())
    assert cluster.pods()[0]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}


def test_the_load_of_the_agents_own_machine_is_not_that_of_the_pool(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    cluster.nodes = [node_of("a", "8", "8Gi", architecture="arm64")]
    machine = Machine(backend, offered=lambda slots: slots, gateway_url="")
    told = machine.describe([], engine_fault="", draining=False, wait=0.0)
    assert (told.architecture, told.os_kernel, told.widest) == ("aarch64", "", [{"cpu": "8", "mem": str(8 * 2**30)}])
    assert told.live is not None
    assert {told.live.cpu_pct, told.live.load, told.live.mem_used, told.live.disk_free} == {None}


def test_a_pod_is_made_as_the_pool_and_the_kernel_say(cluster: Cluster, backend: KubernetesBackend) -> None:
    pool = PoolSettings(
        nodes={"pool": "a"},
        labels={"kueue.x-k8s.io/queue-name": "lab"},
        runtime_class="kata",
        gpu="amd.com/gpu",
        tolerations=({"key": "spot", "operator": "Exists"},),
    )
    backend = KubernetesBackend(
        backend._logs._folder, backend.api.access, pool, deployment="test", agent="n1", told=Slots()
    )
    cluster.nodes = [node_of("a", "8", "8Gi")]
    cluster.nodes[0]["status"]["allocatable"]["amd.com/gpu"] = "2"
    spec = make_spec(slots={"cpu": "0.5", "mem": str(2**30), "cuda.device": "1"}, shm_bytes=2**20, scratch_bytes=2**30)
    backend.start(spec)
    pod = cluster.pods()[0]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab"
    assert (pod["spec"]["nodeSelector"], pod["spec"]["runtimeClassName"]) == ({"pool": "a"}, "kata")
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    volumes = {one.pop("name"): one for one in pod["spec"]["volumes"]}
    assert volumes["shm"] == {"emptyDir": {"medium": "Memory", "sizeLimit": str(2**20)}}
    assert volumes["scratch"] == {"emptyDir": {"sizeLimit": str(2**30)}}
    wanted = {"cpu": "500m", "memory": str(2**30), "amd.com/gpu": "1"}
    resources = pod["spec"]["containers"][0]["resources"]
    assert wanted.items() <= resources["requests"].items() and wanted.items() <= resources["limits"].items()
    assert any("labelSelector=pool%3Da" in path for method, path in cluster.asked if "/nodes" in path)
    backend.close()


def test_gpus_of_a_pool_are_as_many_as_its_nodes_have_and_stay_while_nothing_is_known(
    cluster: Cluster, backend: KubernetesBackend
) -> None:
    now = [2]

    def count() -> int:
        if not now:
            raise BackendError("The Kubernetes API does not answer.")
        return now[0]

    gpus = PoolGpus(count)
    assert [device.slot for device in gpus.discover().devices] == ["cuda.device"] * 2
    now.clear()
    assert len(gpus.discover().devices) == 2, "a cluster that does not answer has not lost its GPUs"
    assert backend.pool.gpus() == 2


def test_a_home_can_lie_on_a_volume_of_its_own(cluster: Cluster, backend: KubernetesBackend, tmp_path: Path) -> None:
    pool = PoolSettings(scratch="fast")
    own = KubernetesBackend(tmp_path, backend.api.access, pool, deployment="test", agent="n1")
    own.start(make_spec(scratch_bytes=5 * 2**30))
    spec = cluster.pods()[0]["spec"]
    scratch = next(one for one in spec["volumes"] if one["name"] == "scratch")
    claim = scratch["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]) == ("fast", {"requests": {"storage": str(5 * 2**30)}})
    assert "home-on-node" not in [note.code for note in own.notes()]
    with pytest.raises(StartFailed) as error:
        own.start(make_spec())
    assert "BACKENDAI_SCRATCH_BYTES" in error.value.message
    own.close()


def test_a_slow_server_is_waited_for_and_a_late_answer_is_adopted(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.delay = 0.3
    spec = make_spec()
    assert not backend.start(spec).adopted
    assert backend.start(spec).adopted
    assert [one.running for one in backend.kernels()] == [True]


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
