"""The Kubernetes backend against an API that is busy, forgets, breaks off or loses nodes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backendai.agent.backends.base import BackendError, KernelGone, StartFailed
from backendai.agent.backends.kubernetes import pods as kubernetes_pods
from backendai.agent.backends.kubernetes.api.access import ApiAccess
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.backends.kubernetes.logs import _EXCUSE
from backendai.agent.settings.kubernetes import PoolSettings
from tests.agent.kubernetes_fake import Cluster
from tests.agent.kubernetes_paper import backend, cluster, name_of
from tests.agent.specs import make_spec
from tests.patience import patient, until

__all__ = ["backend", "cluster"]  # fixtures


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
    access = ApiAccess("http://127.0.0.1:9", "lab", None, lambda: "")
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
    thread.join(patient(10))
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


@pytest.mark.parametrize(("code", "reason"), [(137, "out-of-memory"), (5, "out-of-memory"), (0, "exited")])
def test_a_process_that_was_killed_at_the_memory_limit_is_told(
    cluster: Cluster, backend: KubernetesBackend, code: int, reason: str
) -> None:
    spec = make_spec()
    backend.start(spec)
    cluster.end(name_of(spec), exitCode=code, reason="OOMKilled")
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and (ended.exit_code, ended.reason, ended.has_cause) == (code, reason, code != 137)
    assert "MiB" in ended.message


def test_a_pod_that_made_room_for_another_says_so(cluster: Cluster, backend: KubernetesBackend) -> None:
    """Newer clusters tell by a condition, older ones by an event alone."""
    new, old = make_spec(), make_spec()
    for spec in (new, old):
        backend.start(spec)
    words = "Preempted by lab/urgent on node node-1"
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": words}
    cluster.change(name_of(new), conditions=[condition])
    backend.api.ask("DELETE", backend.api.path("pods", name_of(new)))
    ended = backend.ended(new.kernel_id)
    assert ended is not None and ended.reason == "pod-evicted" and words in ended.message
    cluster.objects["events", "e"] = {"metadata": {"name": "e"}, "reason": "Preempted", "message": words}
    backend.api.ask("DELETE", backend.api.path("pods", name_of(old)))
    ended = backend.ended(old.kernel_id)
    assert ended is not None and ended.reason == "pod-evicted" and words in ended.message


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (["Cancelling deletion of Pod"], "pod-deleted"),
        (["Marking for deletion Pod", "Cancelling deletion of Pod"], "pod-deleted"),
        (["Cancelling deletion of Pod", "Marking for deletion Pod"], "pod-evicted"),
    ],
)
def test_an_eviction_that_was_called_off_ended_nothing(
    cluster: Cluster, backend: KubernetesBackend, told: list[str], reason: str
) -> None:
    """The node recovered before the time that its pods tolerate was over; later somebody deletes a pod."""
    spec = make_spec()
    backend.start(spec)
    for number, words in enumerate(told):
        name, at = f"e{len(told) - number}", f"2026-11-26T10:00:0{number}Z"  # the API lists them by name
        event = {"reason": "TaintManagerEviction", "message": f"{words} lab/{name_of(spec)}", "lastTimestamp": at}
        cluster.objects["events", name] = {"metadata": {"name": name}, **event}
    backend.api.ask("DELETE", backend.api.path("pods", name_of(spec)))
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and ended.reason == reason


def test_a_late_removal_spares_the_next_generation(cluster: Cluster, backend: KubernetesBackend) -> None:
    spec = make_spec()
    backend.start(spec)
    old = dict(cluster.pods()[0], metadata=dict(cluster.pods()[0]["metadata"]))
    backend.start(spec.model_copy(update={"generation": 2}))
    backend._pods.remove(old)
    assert [(one.generation, one.running) for one in backend.kernels()] == [(2, True)]


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


def test_a_slow_server_is_waited_for_and_a_late_answer_is_adopted(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.delay = 0.3
    spec = make_spec()
    assert not backend.start(spec).adopted
    assert backend.start(spec).adopted
    assert [one.running for one in backend.kernels()] == [True]
