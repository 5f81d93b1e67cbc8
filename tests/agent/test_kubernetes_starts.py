"""Starts of pods by a scripted API that refuses, has no room, or fetches images."""

from __future__ import annotations

import copy
import json
import threading
from typing import Any

import pytest

from backendai.agent.backends.base import Fetched, ImageNotFound, StaleGeneration, StartFailed
from backendai.agent.backends.kubernetes import images as kubernetes_images
from backendai.agent.backends.kubernetes import start as kubernetes_start
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.wire.images import RegistryAccess
from tests.agent.kubernetes_fake import Cluster
from tests.agent.kubernetes_paper import backend, cluster, name_of
from tests.agent.specs import make_spec
from tests.patience import until

__all__ = ["backend", "cluster"]  # fixtures


_CREATING = {"waiting": {"reason": "ContainerCreating"}}


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


def test_a_deleted_pod_without_a_node_never_ran(cluster: Cluster, backend: KubernetesBackend) -> None:
    cluster.runs = False
    spec = make_spec(create_timeout=0.3)
    with pytest.raises(StartFailed) as error:
        backend.start(spec)
    assert error.value.code == "create-timeout"
    assert cluster.pods() == []


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


def test_a_sweep_leaves_a_pull_of_many_minutes_alone_and_deletes_one_of_a_killed_agent(
    cluster: Cluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_images, "_SECONDS", 0.01)
    cluster.runs = False  # and whatever it makes is old
    seen: list[set[tuple[str, str]]] = []

    def progress(_: Fetched) -> None:
        (name,) = [name for kind, name in cluster.objects if kind == "pods"]
        cluster.objects["pods", "pull-left"] = copy.deepcopy(cluster.objects["pods", name])
        cluster.objects["pods", "pull-left"]["metadata"]["name"] = "pull-left"
        backend.sweep(set())
        seen.append({key for key in cluster.objects if "pull-" in key[1]})
        cluster.change(name, containerStatuses=[{"name": "main", "state": {"running": {}}}])

    account = RegistryAccess(username="me", password="secret")
    backend.pull("local/large:1", timeout=10, progress=progress, access=account)
    (during,) = seen
    assert {kind for kind, _ in during} == {"pods", "secrets"} and ("pods", "pull-left") not in during


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
