"""What the real engine is told of a kernel's GPUs, without there being any."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import APIClient

from backendai.agent.accelerators.base import Accelerator
from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.create import container_body
from tests.agent.accelerators.known_gpus import GrantedAnyway, TwoGpus
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.specs import TINY_IMAGE

pytestmark = pytest.mark.docker
GREEDY_IMAGE = "local/backendai-test:greedy"


@pytest.fixture
def greedy(engine: APIClient) -> Iterator[str]:
    """An image that asks for all GPUs of the machine by itself."""
    wishes = "NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0,1 NVIDIA_DRIVER_CAPABILITIES=all"
    lines = f"FROM {TINY_IMAGE}\nENV {wishes}\n"
    for _ in engine.build(fileobj=io.BytesIO(lines.encode()), tag=GREEDY_IMAGE, rm=True):
        pass
    yield GREEDY_IMAGE
    engine.remove_image(GREEDY_IMAGE, force=True)


def with_gpus(tmp_path: Path, deployment: str, one: Accelerator) -> tuple[DockerBackend, Accelerators]:
    accelerators = Accelerators([one])
    accelerators.look()
    return DockerBackend(tmp_path / "n1", deployment=deployment, agent="n1", accelerators=accelerators), accelerators


def test_a_session_without_gpus_sees_none_whatever_its_image_and_its_owner_ask_for(
    backend: DockerBackend, new_spec: NewSpec, engine: APIClient, greedy: str
) -> None:
    wishes = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0"}
    spec = new_spec(image=greedy, environ=wishes)
    backend.start(spec)
    _, told = shell(engine, spec.kernel_id, "env | grep -E 'VISIBLE_DEVICES|GPU' | sort; ls /dev/nvidia* 2>&1 | wc -l")
    assert told.split() == ["CUDA_VISIBLE_DEVICES=", "GPU_COUNT=0", "NVIDIA_VISIBLE_DEVICES=void", "N_GPUS=0", "1"]
    found = engine.inspect_container(f"krn-{spec.kernel_id}")
    assert not found["HostConfig"]["DeviceRequests"] and not found["HostConfig"]["Devices"]


def test_a_session_with_one_gpu_asks_for_that_one_by_its_id(
    tmp_path: Path, deployment: str, new_spec: NewSpec, engine: APIClient, greedy: str
) -> None:
    backend, _ = with_gpus(tmp_path, deployment, GrantedAnyway())
    spec = new_spec(image=greedy, devices={"cuda.device": {"GPU-1": "1"}})
    backend.start(spec)
    _, told = shell(engine, spec.kernel_id, "env | grep -E 'NVIDIA|CUDA|GPU' | sort; ls /dev/gpu*")
    assert told.split() == [
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=0",
        "GPU_CONFIG=GPU-1=1",
        "GPU_COUNT=1",
        "GPU_MODEL_NAME=H200",
        "GPU_TYPE=cuda",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
        "NVIDIA_VISIBLE_DEVICES=GPU-1",
        "N_GPUS=1",
        "TF_GPU_MEMORY_ALLOC=131072",
        "/dev/gpu0",
    ]
    backend.remove(spec.kernel_id)


def test_the_engine_is_asked_for_gpus_by_id_and_never_for_a_number_of_them(
    tmp_path: Path, deployment: str, new_spec: NewSpec, engine: APIClient
) -> None:
    _, accelerators = with_gpus(tmp_path, deployment, TwoGpus())
    spec = new_spec(devices={"cuda.device": {"GPU-1": "1"}})
    body = container_body(spec, labels={}, scratch=tmp_path, network="none", cpus=1, grant=accelerators.grant(spec))
    body["HostConfig"].pop("Mounts")
    made = engine.create_container_from_config(body, f"krn-{spec.kernel_id}")
    try:
        (request,) = engine.inspect_container(made["Id"])["HostConfig"]["DeviceRequests"]
    finally:
        engine.remove_container(made["Id"])
    assert (request["Driver"], request["Count"], request["DeviceIDs"]) == ("nvidia", 0, ["GPU-1"])


def test_a_node_without_nvidias_runtime_says_so_before_and_after_a_start_fails(
    tmp_path: Path, deployment: str, new_spec: NewSpec, engine: APIClient
) -> None:
    backend, accelerators = with_gpus(tmp_path, deployment, TwoGpus())
    assert "accelerator-runtime-missing" in {note.code for note in backend.notes()}
    spec = new_spec(devices={"cuda.device": {"GPU-0": "1"}})
    with pytest.raises(StartFailed) as failed:
        backend.start(spec)
    assert failed.value.code == "accelerator-runtime-missing"
    assert not engine.containers(all=True, filters={"name": f"krn-{spec.kernel_id}"})
    assert accelerators.offer([]).devices == {}, "the next session would fail as well"


def test_a_kernel_that_runs_is_adopted_even_when_its_gpu_has_failed_meanwhile(
    tmp_path: Path, deployment: str, new_spec: NewSpec
) -> None:
    gpus = GrantedAnyway()
    backend, accelerators = with_gpus(tmp_path, deployment, gpus)
    spec = new_spec(devices={"cuda.device": {"GPU-0": "1"}})
    backend.start(spec)
    gpus.count = 0
    accelerators.look()
    assert backend.start(spec).adopted
    with pytest.raises(StartFailed) as failed:
        backend.start(new_spec(devices={"cuda.device": {"GPU-0": "1"}}))
    assert failed.value.code == "device-lost"
    backend.remove(spec.kernel_id)
