"""NVIDIA GPUs through the real pynvml: on a library that makes a machine up, and on a real one with ``-m gpu``."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.agent.accelerators.machines import FakeMachine, GpuMachine, build_library, make_gpus

MIB = 2**20


def test_it_finds_every_gpu_with_its_model_and_memory_and_says_how_busy_it_is(gpu_machine: GpuMachine) -> None:
    gpus = gpu_machine.gpus
    with gpu_machine.observed() as agent:
        told = agent.look()
        assert told["devices"] == {"cuda.device": [gpu.uuid for gpu in gpus]}
        assert told["capacity"] == {"cuda.device": str(len(gpus))}
        assert {name: (one["model"], one["healthy"]) for name, one in told["samples"].items()} == {
            gpu.uuid: (gpu.model, True) for gpu in gpus
        }
        for gpu in gpus:
            sample = told["samples"][gpu.uuid]
            assert sample["mem_total"] == pytest.approx(gpu.mib * MIB, rel=0.02)
            assert 0 <= sample["mem_used"] <= sample["mem_total"]
            assert 0 <= sample["util_pct"] <= 100
        assert agent.ask("contract") == "kept"


def test_a_session_with_one_gpu_is_told_of_that_one_alone(gpu_machine: GpuMachine) -> None:
    gpu = gpu_machine.gpus[-1]
    with gpu_machine.observed() as agent:
        agent.look()
        given = agent.ask("grant", devices={"cuda.device": {gpu.uuid: "1"}})
        (request,) = given["host"]["DeviceRequests"]
        assert (request["Driver"], request["DeviceIDs"], "Count" in request) == ("nvidia", [gpu.uuid], False)
        environ = given["environ"]
        assert (environ["NVIDIA_VISIBLE_DEVICES"], environ["CUDA_VISIBLE_DEVICES"]) == (gpu.uuid, "0")
        assert (environ["GPU_COUNT"], environ["GPU_TYPE"], environ["GPU_MODEL_NAME"]) == ("1", "cuda", gpu.model)
        assert int(environ["TF_GPU_MEMORY_ALLOC"]) == pytest.approx(gpu.mib, rel=0.02)
        assert "IpcMode" not in given["host"] and "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in environ
        native = agent.ask("grant", devices={"cuda.device": {gpu.uuid: "1"}}, native=True)
        assert native["environ"]["CUDA_VISIBLE_DEVICES"] == gpu.uuid
        assert native["host"] == {} and "/dev/nvidiactl" in native["paths"]
        assert len([path for path in native["paths"] if path.removeprefix("/dev/nvidia").isdigit()]) == 1
        none = agent.ask("grant", devices={})
        assert (none["environ"]["NVIDIA_VISIBLE_DEVICES"], none["environ"]["CUDA_VISIBLE_DEVICES"]) == ("void", "")
        assert (none["host"], none["paths"]) == ({}, [])


def test_it_follows_load_and_faults_while_it_runs(two_gpus: FakeMachine) -> None:
    first, second = (gpu.uuid for gpu in two_gpus.gpus)
    with two_gpus.observed() as agent:
        agent.look()
        two_gpus.say(util=73, used=2048)
        told = agent.look()
        assert (told["samples"][first]["util_pct"], told["samples"][first]["mem_used"]) == (73.0, 2048 * MIB)
        two_gpus.say(errors={1: 15})
        told = agent.look()
        assert (told["devices"], told["capacity"]) == ({"cuda.device": [first]}, {"cuda.device": "1"})
        lost = told["samples"][second]
        assert (lost["healthy"], lost["util_pct"], "lost" in lost["note"]) == (False, None, True)
        assert second in told["notes"]["accelerator-unhealthy"]
        refused = agent.ask("grant", devices={"cuda.device": {second: "1"}})
        assert refused["code"] == "device-lost" and "lost" in refused["message"]
        two_gpus.say("xid 0 79")
        told = agent.look()
        assert told["devices"] == {"cuda.device": [second]}
        assert "79" in told["samples"][first]["note"]
        two_gpus.say()
        assert agent.look()["devices"] == {"cuda.device": [second]}, "a critical error is not forgotten"


def test_a_gpu_that_is_lost_when_the_agent_starts_is_said_to_be_until_it_answers(two_gpus: FakeMachine) -> None:
    first, second = (gpu.uuid for gpu in two_gpus.gpus)
    two_gpus.say(errors={1: 15})
    with two_gpus.observed() as agent:
        told = agent.look()
        assert told["devices"] == {"cuda.device": [first]}
        assert {name: one["healthy"] for name, one in told["samples"].items()} == {first: True, "GPU-1": False}
        two_gpus.say()
        told = agent.look()
        assert (list(told["samples"]), told["notes"]) == ([first, second], {})


def test_a_mistake_of_a_program_takes_no_gpu_away(two_gpus: FakeMachine) -> None:
    with two_gpus.observed() as agent:
        agent.look()
        two_gpus.say("xid 1 31")
        assert agent.look()["capacity"] == {"cuda.device": "2"}


def test_a_gpu_that_was_pulled_out_is_missed_and_welcome_back(tmp_path: Path, libraries: Path) -> None:
    machine = FakeMachine(tmp_path, libraries, *make_gpus(8))
    gpus = list(machine.gpus)
    with machine.observed() as agent:
        assert agent.look()["capacity"] == {"cuda.device": "8"}
        machine.gpus.pop()
        machine.say()
        told = agent.look()
        assert told["capacity"] == {"cuda.device": "7"}
        assert "gone" in told["samples"][gpus[-1].uuid]["note"]
        machine.gpus.append(gpus[-1])
        machine.say()
        assert agent.look()["capacity"] == {"cuda.device": "8"}


def test_defective_memory_keeps_new_sessions_away(tmp_path: Path, libraries: Path) -> None:
    machine = FakeMachine(tmp_path, libraries, *make_gpus(1, "NVIDIA A30 broken"))
    with machine.observed() as agent:
        told = agent.look()
        assert (told["devices"], told["capacity"]) == ({}, {})
        assert "defective" in told["notes"]["accelerator-unhealthy"]


def test_a_driver_that_went_away_leaves_the_agent_alive_until_it_is_back(two_gpus: FakeMachine) -> None:
    with two_gpus.observed() as agent:
        agent.look()
        two_gpus.say("init 18")
        told = agent.look()
        assert (told["devices"], "mismatch" in told["notes"]["nvidia-driver"]) == ({}, True)
        assert [one["healthy"] for one in told["samples"].values()] == [False, False]
        two_gpus.say()
        told = agent.look()
        assert (told["capacity"], told["notes"]) == ({"cuda.device": "2"}, {})


@pytest.mark.parametrize("cards", [0, 2])
def test_a_machine_without_the_library_is_told_off_only_if_it_has_gpus(tmp_path: Path, cards: int) -> None:
    for number in range(cards):
        card = tmp_path / "sys/bus/pci/devices" / f"0000:{number:02x}:00.0"
        card.mkdir(parents=True)
        (card / "vendor").write_text("0x10de\n")
        (card / "class").write_text("0x030200\n")
    machine = FakeMachine(tmp_path, tmp_path)
    with machine.observed(sys=str(tmp_path / "sys")) as agent:
        told = agent.look()
        assert (told["devices"], told["samples"]) == ({}, {})
        assert list(told["notes"]) == (["nvidia-driver"] if cards else [])
        assert agent.ask("contract") == "kept"


def test_an_old_driver_with_few_functions_still_gives_its_gpus(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    libraries = build_library(tmp_path_factory.mktemp("nvml") / "few", "-DFEW")
    machine = FakeMachine(tmp_path, libraries, *make_gpus(2, "Tesla K80"))
    machine.say("proc 0 1 100 5", util=50, used=100)
    with machine.observed() as agent:
        told = agent.look()
        assert told["capacity"] == {"cuda.device": "2"}
        sample = told["samples"][machine.gpus[0].uuid]
        assert (sample["util_pct"], sample["mem_used"], sample["kernels"]) == (None, 100 * MIB, {})
        assert agent.ask("contract") == "kept"


def test_it_says_which_kernel_uses_a_gpu(two_gpus: FakeMachine) -> None:
    first, second = (gpu.uuid for gpu in two_gpus.gpus)
    kernel = str(uuid4())
    with two_gpus.observed() as agent:
        two_gpus.say(f"proc 0 {agent.pid} 512 40", "proc 1 4194303 9 9", util=40, used=512)
        told = agent.look(container=kernel)
        assert (told["samples"][first]["kernels"], told["samples"][second]["kernels"]) == ({}, {})
    two_gpus.environ["BACKENDAI_KERNEL_ID"] = kernel
    with two_gpus.observed() as agent:
        two_gpus.say(f"proc 0 {agent.pid} 512 40", util=40, used=512)
        told = agent.look(container=kernel)
        assert told["samples"][first]["kernels"] == {kernel: {"util_pct": 40.0, "mem_used": 512 * MIB}}


def test_shares_are_limited_by_mps_where_its_daemon_listens(two_gpus: FakeMachine, tmp_path: Path) -> None:
    first, second = (gpu.uuid for gpu in two_gpus.gpus)
    pipe = tmp_path / "mps"
    with two_gpus.observed(offer="shares", mps=str(pipe)) as agent:
        told = agent.look()
        assert told["capacity"] == {"cuda.shares": "2"}
        assert "mps-missing" in told["notes"]
        given = agent.ask("grant", devices={"cuda.shares": {second: "0.25"}})
        assert "IpcMode" not in given["host"] and "CUDA_MPS_PIPE_DIRECTORY" not in given["environ"]
        pipe.mkdir()
        (pipe / "control").touch()
        assert agent.look()["notes"] == {}
        given = agent.ask("grant", devices={"cuda.shares": {second: "0.25", first: "0.5"}})
        environ, host = given["environ"], given["host"]
        assert environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        assert environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=71885M,1=35942M"
        assert (environ["CUDA_VISIBLE_DEVICES"], environ["GPU_COUNT"]) == ("0,1", "2")
        assert environ["GPU_CONFIG"] == f"{first}=0.5,{second}=0.25"
        assert host["DeviceRequests"][0]["DeviceIDs"] == [first, second]
        assert (host["Mounts"][0]["Source"], host["IpcMode"]) == (str(pipe), "host")
        assert environ["CUDA_MPS_PIPE_DIRECTORY"] == host["Mounts"][0]["Target"]
        refused = agent.ask("grant", devices={"cuda.device": {first: "1"}})
        assert refused["code"] == "device-lost", "a GPU is handed out one way only"


def test_native_kernels_never_wait_for_each_other_in_mps(two_gpus: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    with two_gpus.observed(offer="shares", mps=str(tmp_path), is_native=True) as agent:
        assert list(agent.look()["notes"]) == ["mps-native"]
        shares = {"cuda.shares": {two_gpus.gpus[0].uuid: "0.5"}}
        environ = agent.ask("grant", devices=shares, native=True)["environ"]
        assert not Path(environ["CUDA_MPS_PIPE_DIRECTORY"]).exists()  # CUDA's own default may have a daemon


def test_a_gpu_that_is_cut_is_offered_piece_by_piece(two_gpus: FakeMachine) -> None:
    whole, cut = (gpu.uuid for gpu in two_gpus.gpus)
    pieces = [f"MIG-{number:08x}-5d3f-5a1c-8c7e-0123456789ab" for number in range(2)]
    with two_gpus.observed() as agent:
        agent.look()
        two_gpus.say(f"mig 1 {pieces[0]} 18000 10 1g.18gb", f"mig 1 {pieces[1]} 36000 20 2g.35gb+me")
        told = agent.look()
        assert told["devices"] == {
            "cuda.device": [whole],
            "cuda.mig-1g.18gb": [pieces[0]],
            "cuda.mig-2g.35gb-me": [pieces[1]],
        }
        assert told["capacity"] == {"cuda.device": "1", "cuda.mig-1g.18gb": "1", "cuda.mig-2g.35gb-me": "1"}
        assert cut not in told["samples"] and told["notes"] == {}
        sample = told["samples"][pieces[0]]
        assert (sample["mem_total"], sample["mem_used"], sample["util_pct"]) == (18000 * MIB, 10 * MIB, None)
        given = agent.ask("grant", devices={"cuda.mig-1g.18gb": {pieces[0]: "1"}})
        assert given["host"]["DeviceRequests"][0]["DeviceIDs"] == [pieces[0]]
        two_gpus.say()
        assert agent.look()["capacity"] == {"cuda.device": "2"}


def test_the_memory_node_near_a_gpu_is_known(two_gpus: FakeMachine, tmp_path: Path) -> None:
    for bus, node in (("19", "1"), ("29", "-1")):
        card = tmp_path / "sys/bus/pci/devices" / f"0000:{bus}:00.0"
        card.mkdir(parents=True)
        (card / "numa_node").write_text(f"{node}\n")
    with two_gpus.observed(sys=str(tmp_path / "sys")) as agent:
        samples = agent.look()["samples"]
        assert [samples[gpu.uuid]["numa"] for gpu in two_gpus.gpus] == [1, None]


def test_a_node_may_offer_fewer_gpus_than_it_has_but_never_one_that_is_not_there(two_gpus: FakeMachine) -> None:
    with two_gpus.observed(asked={"cuda.device": 1000}) as agent:
        told = agent.look()
        assert (told["capacity"], len(told["devices"]["cuda.device"])) == ({"cuda.device": "1"}, 2)
    with two_gpus.observed(asked={"cuda.device": 9000, "cuda.shares": 1000}) as agent:
        told = agent.look()
        assert told["capacity"] == {"cuda.device": "2"}
        assert "cuda.shares" in told["notes"]["accelerator-not-offered"]
        two_gpus.say("init 9")
        assert agent.look()["capacity"] == {}, "hardware that fails is not made up for"
