"""Ends and refusals that a real cluster brings about: quotas, no room, full homes, namespaces and nodes that go."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from backendai.agent.backends.base import BackendError, ImageNotFound, KernelGone, StartFailed
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.api.client import ApiError
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.settings.kubernetes import PoolSettings
from tests.agent.contract_tools import NewSpec
from tests.agent.images import TINY_IMAGE
from tests.agent.kubernetes_bed import bed, ensure_bed, kubectl, namespace
from tests.agent.specs import make_spec
from tests.patience import patient, until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    ensure_bed()
    with namespace() as (name, said):
        (tmp_path / "config").write_text(yaml.safe_dump(said))
        yield name, tmp_path / "config"


@pytest.fixture
def backend(place: tuple[str, Path], tmp_path: Path) -> Iterator[KubernetesBackend]:
    pool = PoolSettings(reach="direct", wait_seconds=3)
    backend = KubernetesBackend(tmp_path, find_access(place[1]), pool, deployment="test", agent="n1")
    backend.setup()
    yield backend
    with contextlib.suppress(ApiError):  # a namespace that has gone has taken the rights along
        for kernel in backend.kernels():
            backend.remove(kernel.kernel_id)
    backend.close()


@pytest.fixture
def new_spec() -> NewSpec:
    return partial(make_spec, deployment="test", agent="n1", slots={"cpu": "0.1", "mem": str(64 * 2**20)})


def end_of(backend: KubernetesBackend, spec: object, seconds: float) -> str:
    """Return why a kernel ended, within so many seconds."""
    deadline = time.monotonic() + patient(seconds)
    while time.monotonic() < deadline:
        if (ended := backend.ended(spec.kernel_id)) is not None:  # type: ignore[attr-defined]
            return ended.reason
        time.sleep(0.5)
    raise AssertionError(f"it has not ended after {seconds} s")


@pytest.mark.long
def test_a_quota_that_is_used_up_is_a_reason_and_nothing_is_left(
    backend: KubernetesBackend, place: tuple[str, Path], new_spec: NewSpec
) -> None:
    kubectl("-n", place[0], "create", "quota", "small", "--hard=requests.cpu=150m,limits.memory=1Gi")
    first = new_spec()
    backend.start(first)
    with pytest.raises(StartFailed) as error:
        backend.start(new_spec())
    assert error.value.code == "quota-exceeded" and "exceeded quota" in error.value.message
    assert [one.kernel_id for one in backend.kernels()] == [first.kernel_id]
    assert backend.fault() == "", "the next session may be smaller"


@pytest.mark.long
def test_what_the_scheduler_has_no_room_for_gives_its_slots_back(backend: KubernetesBackend, new_spec: NewSpec) -> None:
    node = json.loads(kubectl("get", "nodes", "-o", "json"))["items"][0]
    cpus = int(node["status"]["allocatable"]["cpu"])
    most = {"cpu": f"{cpus * 0.6:g}", "mem": str(64 * 2**20)}
    backend.start(new_spec(slots=most))
    with pytest.raises(StartFailed) as error:
        backend.start(new_spec(slots=most))
    assert error.value.code == "unschedulable" and "Insufficient cpu" in error.value.message
    assert len(backend.kernels()) == 1


@pytest.mark.long
def test_a_pod_that_makes_room_for_a_more_urgent_one_says_so(
    backend: KubernetesBackend, place: tuple[str, Path], new_spec: NewSpec
) -> None:
    node = json.loads(kubectl("get", "nodes", "-o", "json"))["items"][0]
    most = {"cpu": f"{int(node['status']['allocatable']['cpu']) * 0.6:g}", "mem": str(64 * 2**20)}
    spec = new_spec(slots=most)
    backend.start(spec)
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "value": 1000,
        "metadata": {"name": place[0]},
    }
    container = {
        "name": "main",
        "image": TINY_IMAGE,
        "command": ["sleep", "300"],
        "resources": {"requests": most_of(most)},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": {"priorityClassName": place[0]}}
    pod["spec"] |= {"containers": [container], "terminationGracePeriodSeconds": 0}  # type: ignore[operator]
    kubectl("apply", "-f", "-", text=yaml.safe_dump(urgent))
    try:
        kubectl("-n", place[0], "apply", "-f", "-", text=yaml.safe_dump(pod))
        assert end_of(backend, spec, 60) == "pod-evicted"
        ended = backend.ended(spec.kernel_id)
        assert ended is not None and "Preempted by" in ended.message
        backend.remove(spec.kernel_id)
        kubectl("-n", place[0], "wait", "--for=condition=Ready", "pod/urgent", "--timeout=60s")
    finally:
        kubectl("delete", "priorityclass", place[0])


def most_of(slots: dict[str, str]) -> dict[str, str]:
    return {"cpu": slots["cpu"], "memory": slots["mem"]}


@pytest.mark.long
def test_a_registry_that_says_nothing_costs_the_patience_of_a_pull_and_leaves_nothing(
    backend: KubernetesBackend, place: tuple[str, Path], new_spec: NewSpec
) -> None:
    here = json.loads(kubectl("get", "nodes", "-o", "json"))["items"][0]["status"]["addresses"][0]["address"]
    with socket.create_server((f"{here.rpartition('.')[0]}.1", 0)) as silent:
        image = f"{silent.getsockname()[0]}:{silent.getsockname()[1]}/lab/image:1"
        with pytest.raises(BackendError) as error:
            backend.pull(image, timeout=6.0, progress=lambda _: None)
        assert not isinstance(error.value, ImageNotFound) and error.value.code == "pull-timeout"
        with pytest.raises(ImageNotFound):
            backend.start(new_spec(image=image, create_timeout=20.0))
    assert backend.kernels() == []
    until(lambda: not json.loads(kubectl("-n", place[0], "get", "pods", "-o", "json"))["items"])


@pytest.mark.ci
def test_a_home_that_is_too_large_is_evicted_with_the_words_of_the_node(
    backend: KubernetesBackend, new_spec: NewSpec
) -> None:
    spec = new_spec(scratch_bytes=8 * 2**20, session_type="batch", command="head -c 40000000 /dev/zero >big; sleep 300")
    backend.start(spec)
    assert end_of(backend, spec, 200) == "pod-evicted"


@pytest.mark.long
def test_a_namespace_that_is_deleted_takes_the_rights_along_and_nothing_is_concluded(
    backend: KubernetesBackend, place: tuple[str, Path], new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    kubectl("delete", "namespace", place[0], "--wait=false")
    until(lambda: "cannot" in _fault_of(backend))
    for ask in (backend.kernels, lambda: backend.ended(spec.kernel_id), lambda: backend.start(new_spec())):
        with pytest.raises(BackendError) as error:
            ask()
        assert not isinstance(error.value, KernelGone | StartFailed), "unknown is not dead"


def _fault_of(backend: KubernetesBackend) -> str:
    backend._rehearsal.doubt()
    return backend.fault()


@pytest.mark.long
def test_a_node_that_is_silent_is_unknown_and_one_that_is_deleted_is_lost(
    backend: KubernetesBackend, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    node = json.loads(kubectl("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]
    bed("kill", "kubelet")
    try:
        kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=60s")
        assert backend.ended(spec.kernel_id) is None
        assert [one.running for one in backend.kernels()] == [True]
        kubectl("delete", "node", node)
        assert end_of(backend, spec, 200) == "node-lost"
        assert [one.running for one in backend.kernels()] == [False]
        backend.remove(spec.kernel_id)
        assert backend.kernels() == []
    finally:
        bed("start", "kubelet")
        deadline = time.monotonic() + patient(60)
        while f"node/{node}" not in kubectl("get", "nodes", "-o", "name") and time.monotonic() < deadline:
            time.sleep(0.5)
        kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@pytest.mark.long
def test_a_network_that_enforces_nothing_is_found_out(place: tuple[str, Path], tmp_path: Path) -> None:
    pool = PoolSettings(reach="direct", probe_image=TINY_IMAGE)
    backend = KubernetesBackend(tmp_path, find_access(place[1]), pool, deployment="test", agent="n2")
    backend.setup()
    deadline = time.monotonic() + patient(120)
    while not backend._probe.verdict and time.monotonic() < deadline:
        time.sleep(0.5)
    assert backend._probe.verdict == "open"
    backend.close()
