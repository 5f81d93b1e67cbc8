"""The QEMU backend with emulated machines: the contract, and what only a machine of its own does.

A start takes seconds. Questions that change nothing share a machine that stands for all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
from docker import APIClient

from backendai.agent.backends.base import Backend, BackendError, StartFailed
from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.agent.backends.qemu.channel.ask import open_stream, output_of, put_file
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.gateway.app_starts import AppStarts
from backendai.agent.gateway.ports import NotListening, Ports
from backendai.agent.mounts.hosts import StorageHosts
from backendai.agent.settings.qemu import QemuSettings
from backendai.base.wire.cluster_network import ClusterNetwork
from backendai.base.wire.messages import HomeFile
from backendai.base.wire.mounts import MountSpec
from tests.agent.backend_contract import BackendContract
from tests.agent.cluster_tools import HOSTILE, cluster_specs
from tests.agent.cluster_tools import run as run_cluster
from tests.agent.contract_tools import NewSpec, answer_of, ended_of
from tests.agent.guest_contract import ECHO, Asker, ProgramContract, text_of
from tests.agent.images import (
    LINKED_IMAGE,
    PYTHON_IMAGE,
    SERVICE_IMAGE,
    SERVICE_LABEL,
    TMUX_IMAGE,
    ensure_linked_image,
    ensure_python_image,
    ensure_service_image,
    ensure_ssh_image,
    ensure_tiny_image,
    ensure_tmux_image,
)
from tests.agent.prerequisites import need_root
from tests.agent.qemu_bed import EMULATED_START, machine_settings
from tests.agent.specs import make_spec
from tests.agent.stream_contract import StreamContract
from tests.mount_tools import folder_on_disk, root_on_disk
from tests.patience import until

pytestmark = [pytest.mark.qemu, pytest.mark.docker, pytest.mark.timeout(300)]
Open = Callable[..., QemuBackend]
SMALL = {"cpu": "1", "mem": str(224 * 2**20)}  # less than half of it is the guest's
STANDING = {  # questions that leave the machine as it was
    "test_it_answers_what_is_typed_in_a_terminal",
    "test_it_leaves_no_client_behind_a_closed_terminal",
    "test_it_can_be_attached_again_after_a_hang_up",
    "test_it_reads_nothing_more_when_the_shell_has_ended",
    "test_it_shows_the_windows_of_tmux_from_the_second_one_on",
    "test_it_sweeps_away_the_clients_left_by_a_killed_agent",
    "test_it_sweeps_without_harming_live_kernels",
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> QemuSettings:
    return machine_settings(tmp_path_factory.mktemp("machines"))


@pytest.fixture(scope="module")
def images() -> None:
    """The test images in the Docker Engine, from where machines get them."""
    client = APIClient()
    for ensure in (
        ensure_tiny_image,
        ensure_tmux_image,
        ensure_service_image,
        ensure_python_image,
        ensure_linked_image,
    ):
        ensure(client)
    client.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("agents")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def made(data: Path, settings: QemuSettings, images: None) -> Iterator[Open]:
    """Makes backends whose kernels go with the module; none leaves a process."""
    backends: list[QemuBackend] = []

    def make(name: str, deployment: str = "test") -> QemuBackend:
        backends.append(QemuBackend(data / name, settings, deployment=deployment, agent="n1"))
        return backends[-1]

    yield make
    clear(backends)


def clear(backends: list[QemuBackend]) -> None:
    for backend in backends:
        for kernel in backend.kernels():
            backend.remove(kernel.kernel_id)
        backend.sweep(set())
        backend.close()
        left = list(backend._starter.places.folders())
        assert left == []


@pytest.fixture(scope="module")
def standing(made: Open) -> Callable[[str], tuple[QemuBackend, NewSpec]]:
    """A backend with a machine that runs, and what orders just that machine again."""
    known: dict[str, tuple[QemuBackend, NewSpec]] = {}

    def stand(image: str) -> tuple[QemuBackend, NewSpec]:
        if image not in known:
            slots = SMALL if image != PYTHON_IMAGE else {"cpu": "1", "mem": str(512 * 2**20)}
            spec = make_spec(slots=slots, image=image, create_timeout=EMULATED_START)
            backend = made(f"standing{len(known)}")
            backend.start(spec)
            known[image] = backend, lambda **over: spec
        return known[image]

    return stand


@pytest.fixture
def opened(data: Path, settings: QemuSettings, images: None, request: pytest.FixtureRequest) -> Iterator[Open]:
    backends: list[QemuBackend] = []

    def make(deployment: str = "test") -> QemuBackend:
        backends.append(QemuBackend(data / "own", settings, deployment=deployment, agent="n1"))
        return backends[-1]

    yield make
    clear(backends)


OVER_AGENTS = ClusterNetwork(vni=1, subnet="10.1.0.0/26", gateway="10.1.0.1", address="10.1.0.2", remotes=["10.0.0.9"])


class Questions:
    """Which machine a question of the contract is asked of."""

    image = make_spec().image

    @pytest.fixture
    def backend(self, request: pytest.FixtureRequest, opened: Open, standing: Callable[..., object]) -> Backend:
        if request.function.__name__ in STANDING:
            return standing(self.image)[0]  # type: ignore[index,return-value]
        return opened()

    @pytest.fixture
    def new_spec(self, request: pytest.FixtureRequest, standing: Callable[..., object]) -> NewSpec:
        if request.function.__name__ in STANDING:
            return standing(self.image)[1]  # type: ignore[index,return-value]
        return partial(make_spec, slots=SMALL, image=self.image, create_timeout=EMULATED_START)

    @pytest.fixture
    def neighbour(self, opened: Open) -> Backend:
        return opened("other")

    @pytest.fixture
    def reopened(self, data: Path, settings: QemuSettings, backend: QemuBackend) -> Callable[[], Backend]:
        return lambda: QemuBackend(backend._data, settings, deployment="test", agent="n1")

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        """Return how many shells have a terminal in the guest."""
        assert isinstance(backend, QemuBackend)
        words = program_words(["sh", "-c", "ls -l /proc/[0-9]*/fd/0 2>/dev/null | grep -c /dev/pts/"], {})
        return int(output_of(backend._running(kernel_id).path, words)[0])


class TestQemuBackend(Questions, BackendContract):
    """The contract, with terminals that are plain shells."""

    def test_it_sweeps_away_the_clients_left_by_a_killed_agent(  # type: ignore[override]
        self, backend: Backend, reopened: Callable[[], Backend], new_spec: NewSpec
    ) -> None:
        pytest.skip("a terminal ends with the connection of its agent")


@pytest.mark.long
class TestQemuTerminalsWithTmux(Questions, StreamContract):
    """The part of the contract about streams, with an image that has tmux."""

    keeps_terminals = True
    image = TMUX_IMAGE

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        """Return how many clients of tmux there are: its server and the shells in it stay."""
        assert isinstance(backend, QemuBackend)
        look = (
            'for one in /proc/[0-9]*; do case $(readlink $one/fd/0) in /dev/pts/*) tr "\\0" " " <$one/cmdline; echo;; '
            "esac; done 2>/dev/null | grep -c new-session"
        )
        return int(output_of(backend._running(kernel_id).path, program_words(["sh", "-c", look], {}))[0])

    def test_it_sweeps_away_the_clients_left_by_a_killed_agent(  # type: ignore[override]
        self, backend: Backend, reopened: Callable[[], Backend], new_spec: NewSpec
    ) -> None:
        pytest.skip("a terminal ends with the connection of its agent")


@pytest.fixture
def backend(opened: Open) -> QemuBackend:
    return opened()


@pytest.fixture
def new_spec(images: None) -> NewSpec:
    return partial(make_spec, slots=SMALL, create_timeout=EMULATED_START)


def run(backend: QemuBackend, kernel_id: UUID, code: str) -> str:
    """Return what a command in the guest writes."""
    return output_of(backend._running(kernel_id).path, program_words(["sh", "-c", code], {}))[0].decode()


def test_a_home_has_its_files_and_limits_hold(backend: QemuBackend, new_spec: NewSpec) -> None:
    files = [
        HomeFile(path=".ssh/config", mode=0o600, content="Host x\n"),
        HomeFile(path="it's $(me)", mode=0o755, content="$HOME 'quoted' $(id)\n"),
    ]
    command = (
        "cat made it*me?; pwd; id -u; stat -c '%a %U' .ssh/config; nproc; df -m /dev/shm | tail -1 | awk '{print $2}';"
        "cat /proc/self/status | grep NoNewPrivs | tr '\\t' ' '; touch /etc/x 2>&1 | grep -c denied;"
        "cd /var/tmp && pwd -P; ls -d /srv/run/backendai;"
        "dd if=/dev/zero of=big bs=1M count=100 2>&1 | grep -c 'No space';"
        "until [ -e /dev/shm/enough ]; do sleep 0.1; done; exit 7"
    )
    spec = new_spec(
        files=files,
        bootstrap="#!/bin/sh\necho made >made\n",
        session_type="batch",
        command=command,
        scratch_bytes=2**25,
        image=LINKED_IMAGE,
    )
    backend.start(spec)
    until(lambda: len(backend.read_log(spec.kernel_id, limit=5000)[0].splitlines()) == 12)
    machine = backend._running(spec.kernel_id).path
    with pytest.raises(BackendError, match="disk of the session is full"):
        put_file(machine, "/run/backendai/program", bytes(2**20))
    with pytest.raises(BackendError, match="No such file"):
        put_file(machine, "/nowhere/program", b"")
    assert "program" not in run(backend, spec.kernel_id, "ls /run/backendai; touch /dev/shm/enough")
    ended = ended_of(backend, spec.kernel_id)
    assert backend.read_log(spec.kernel_id, limit=5000)[0].decode().split("\n") == [
        "made", "$HOME 'quoted' $(id)", "/home/work", "1000", "600 work", "1", "16", "NoNewPrivs: 1", "1", "/tmp",
        "/srv/run/backendai", "1", "",
    ]  # fmt: skip
    assert ended.exit_code == 7
    assert "disk of 32 MiB is full" in ended.message


def test_memory_that_runs_out_is_a_reason_with_its_amount(backend: QemuBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_type="batch", command="exec tail -c 200000000 /dev/zero")
    backend.start(spec)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason, "96 MiB" in ended.message) == (137, "out-of-memory", True)


def test_a_machine_that_is_killed_ends_without_an_exit_code_and_leaves_nothing(
    backend: QemuBackend, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    folder = backend._running(spec.kernel_id)
    supervisor = psutil.Process(folder.runner())
    (machine,) = supervisor.children()
    assert machine.uids().real != os.geteuid()
    cgroups = folder.read("launch")["cgroups"]
    machine.kill()
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason, ended.message) == (None, "exited", "The virtual machine ended.")
    until(lambda: backend._starter.reap() or not supervisor.is_running())
    assert [cgroup for cgroup in cgroups if Path(cgroup).exists()] == []


@pytest.mark.long
def test_a_machine_that_hangs_is_ended_when_its_grace_is_over(backend: QemuBackend, new_spec: NewSpec) -> None:
    spec = new_spec()
    backend.start(spec)
    (machine,) = psutil.Process(backend._running(spec.kernel_id).runner()).children()
    machine.suspend()
    backend.stop(spec.kernel_id, grace=0.5)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (None, "") and not machine.is_running()


def test_a_machine_does_not_outlive_its_supervisor(backend: QemuBackend, new_spec: NewSpec) -> None:
    spec = new_spec()
    backend.start(spec)
    supervisor = psutil.Process(backend._running(spec.kernel_id).runner())
    (machine,) = supervisor.children()
    supervisor.kill()
    until(lambda: not machine.is_running())
    ended = ended_of(backend, spec.kernel_id)
    assert ended.exit_code is None and "supervisor" in ended.message


DIE_WHILE_STARTING = """
import os, signal, sys
from pathlib import Path
from backendai.agent.backends.native import supervisors
from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.agent.settings.qemu import QemuSettings
from backendai.base.wire.messages import KernelSpec
supervisors.select.select = lambda *ends: os.kill(os.getpid(), signal.SIGKILL)
data, root, cache = map(Path, sys.argv[1:4])
backend = QemuBackend(data, QemuSettings(root=root, cache=cache, acceleration="tcg"), deployment="test", agent="n1")
backend.start(KernelSpec.model_validate_json(sys.argv[4]))
"""


@pytest.mark.long
def test_a_start_whose_agent_was_killed_is_repeated_and_leaves_nothing_beside_the_new_one(
    backend: QemuBackend, new_spec: NewSpec
) -> None:
    spec, settings = new_spec(), backend.settings
    told = [str(backend._data), str(settings.root), str(settings.cache), spec.model_dump_json()]
    script = [sys.executable, "-c", DIE_WHILE_STARTING, *told]
    assert subprocess.run(script, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
    folder = backend._starter.places.find(spec.kernel_id)
    left = folder.processes()
    assert left and not folder.started(), "its supervisor waits for the guest"
    assert not backend.start(spec).adopted
    assert folder.processes() and not folder.processes() & left
    assert backend.ended(spec.kernel_id) is None
    assert run(backend, spec.kernel_id, "echo here").strip() == "here"


OPEN_AND_DIE = """
import asyncio, os, signal, sys
from pathlib import Path
from uuid import UUID, uuid4
from backendai.agent.backends.qemu.backend import QemuBackend
from tests.agent.contract_tools import ask
async def main():
    backend = QemuBackend(Path(sys.argv[1]), deployment="test", agent="n1")
    terminal = await backend.open_terminal(UUID(sys.argv[2]), name="one", rows=24, cols=80)
    await ask(terminal, b"echo mark-$((40 + 2))\\n", b"mark-42")
    print("here", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.long
def test_the_terminals_of_a_killed_agent_are_hung_up(
    standing: Callable[[str], tuple[QemuBackend, NewSpec]],
) -> None:
    backend, new = standing(make_spec().image)
    kernel_id = new().kernel_id
    count = "ls -l /proc/[0-9]*/fd/0 2>/dev/null | grep -c /dev/pts/"
    before = int(run(backend, kernel_id, count))
    words = [sys.executable, "-c", OPEN_AND_DIE, str(backend._data), str(kernel_id)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as agent:
        assert agent.stdout is not None and agent.stdout.readline() == b"here\n"
        assert int(run(backend, kernel_id, count)) > before
        agent.kill()
    until(lambda: int(run(backend, kernel_id, count)) == before)


@pytest.mark.ci
@pytest.mark.asyncio
async def test_an_app_is_started_and_reached(backend: QemuBackend, new_spec: NewSpec) -> None:
    spec = new_spec(image=SERVICE_IMAGE, environ={"BACKENDAI_SERVICE_PORTS": SERVICE_LABEL})
    await asyncio.to_thread(backend.start, spec)
    assert backend.services is not None
    ports = Ports(backend.services)
    starts = AppStarts(backend.services, ports)
    async with asyncio.timeout(90):
        while (state := await starts.look(spec.kernel_id, "notes", 8000)).state == "starting":
            await asyncio.sleep(0.2)
        assert state.state == "ready", state
        assert (await starts.look(spec.kernel_id, "byhand", 8002)).state == "absent"
        while (state := await starts.look(spec.kernel_id, "broken", 8001)).state == "starting":
            await asyncio.sleep(0.2)
        assert state.state == "failed" and "exit code 3" in state.message and "nothing works" in state.log
        assert b"200 OK" in await asyncio.to_thread(answer_of, ports, spec.kernel_id)
    with pytest.raises(NotListening):
        await ports.dial(spec.kernel_id, "nothing", 9999)


@pytest.mark.parametrize(
    ("over", "code", "words"),
    [
        ({"slots": {"cpu": "1", "mem": str(150 * 2**20)}}, "failed-to-start", "224 MiB"),
        ({"cluster_size": 31}, "cluster-network-failed", "30 kernels"),
        ({"cluster_size": 2, "network": OVER_AGENTS}, "cluster-network-failed", "this agent as a whole"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason_and_leaves_nothing(
    backend: QemuBackend, new_spec: NewSpec, over: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(StartFailed, match=words) as refused:
        backend.start(new_spec(**over))
    assert refused.value.code == code
    assert list(backend._starter.places.folders()) == []


@pytest.mark.ci
def test_kernels_of_a_session_log_in_to_each_other_and_a_restarted_one_is_reached_again(
    backend: QemuBackend, new_spec: NewSpec
) -> None:
    client = APIClient()
    image = ensure_ssh_image(client)
    client.close()
    specs = cluster_specs(partial(new_spec, image=image), ["main1", "sub1", "sub2"])
    log = run_cluster(backend, specs)
    odd = hashlib.md5(HOSTILE.encode()).hexdigest()
    told = [line.split("  ")[0] for line in log.splitlines()]
    assert told == [line for rank, spec in enumerate(specs) for line in (f"rank {rank} of 3 on {spec.hostname}", odd)]
    first, second, _ = (spec.kernel_id for spec in specs)
    backend.remove(first)
    backend.start(specs[0].model_copy(update={"generation": 2, "command": "exec sleep 300"}))
    answer = run(
        backend, second, "nc main1 9 </dev/null 2>&1; cat /etc/hosts; id -u; ls -ln /run/backendai/ssh/host_key"
    )
    assert "refused" in answer, "its guest has answered"
    assert "198.51.100.225 main1" in answer and "-rw-------    1 1000     1000" in answer
    backend.sweep({spec.kernel_id for spec in specs})
    assert len(list((backend._data / "sessions").iterdir())) == 1
    for spec in specs:
        backend.remove(spec.kernel_id)
    backend.sweep(set())
    assert list((backend._data / "sessions").iterdir()) == []


def test_folders_are_shared_kept_from_writing_and_taken_away(
    data: Path, settings: QemuSettings, images: None, new_spec: NewSpec
) -> None:
    need_root("folders need an agent of root")
    root = root_on_disk(data / "storage", deployment="test", uid=1000)
    folders = [uuid4(), uuid4()]
    edited, viewed = (folder_on_disk(root, folder, uid=1000) for folder in folders)
    (viewed / "given").write_text("from outside")
    backend = QemuBackend(
        data / "folders", settings, deployment="test", agent="n1", hosts=StorageHosts({"local": root}, (), "test")
    )
    mounts = [
        MountSpec(folder_id=folders[0], target="/home/work/data", host="local", folder_name="data", rights="edit"),
        MountSpec(folder_id=folders[1], target="/mnt/given", host="local", folder_name="given", rights="view"),
    ]
    spec = new_spec(mounts=mounts)
    backend.start(spec)
    try:
        assert run(backend, spec.kernel_id, "cat /mnt/given/given; echo made >data/file; stat -c %U data/file") == (
            "from outsidework\n"
        )
        assert ((edited / "file").read_text(), (edited / "file").stat().st_uid) == ("made\n", 1000)
        assert "Read-only" in run(backend, spec.kernel_id, "touch /mnt/given/x 2>&1")
        assert list(viewed.iterdir()) == [viewed / "given"]
        words = program_words(["sh", "-c", "exec sleep 600 <data/file"], {})
        open_stream(backend._running(spec.kernel_id).path, "d", words)[0].close()
        until(lambda: "600" in run(backend, spec.kernel_id, "ps | grep [s]leep"))
        assert backend.cut_folder(spec.kernel_id, folders[0]) == 1
        assert run(backend, spec.kernel_id, "ls data; ps | grep -c '[s]leep 600'") == "0\n"
        assert run(backend, spec.kernel_id, "cat /mnt/given/given") == "from outside"
        with pytest.raises(BackendError, match="sees the folder"):
            backend.cut_folder(spec.kernel_id, uuid4())
    finally:
        clear([backend])
    assert (edited / "file").read_text() == "made\n"
    assert [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(data) in line] == []


@pytest.mark.ci
def test_code_runs_with_the_python_of_the_image_and_its_servers_are_reached(
    standing: Callable[[str], tuple[QemuBackend, NewSpec]],
) -> None:
    backend, new = standing(PYTHON_IMAGE)
    asker = Asker(backend, new().kernel_id)

    async def walk() -> None:
        assert text_of(await asker.run("print(6*7)")) == "42\n"
        port = int(text_of(await asker.run(ECHO.format("127.0.0.1"))))
        assert await asker.echo(b"x" * 2**20, port=port) == b"hello " + b"x" * 2**20

    asker.play(walk)


@pytest.mark.long
def test_commands_run_and_files_are_moved_where_the_image_has_no_python(
    standing: Callable[[str], tuple[QemuBackend, NewSpec]],
) -> None:
    backend, new = standing(make_spec().image)
    asker = Asker(backend, new().kernel_id)

    async def walk() -> None:
        told = await asker.run("echo $((6*7)) >made; cat made; ls /run/backendai-kit", mode="batch")
        assert text_of(told).startswith("42\n") and "current" in text_of(told), told
        listed = await asker.ask("list", path="", limit=10)
        assert "made" in [entry["name"] for entry in listed["entries"]]

    asker.play(walk)


@pytest.mark.long
class TestCodeInMachines(ProgramContract):
    """All about running code with the image's Python, on one machine: two minutes."""

    def test_a_deleted_context_takes_its_runs_along_if_asked_to(self, asker: Asker) -> None:
        pytest.skip("the list of languages takes an emulated Python longer than a guest waits for it")

    @pytest.fixture
    def kernel(self, standing: Callable[[str], tuple[QemuBackend, NewSpec]]) -> UUID:
        return standing(PYTHON_IMAGE)[1]().kernel_id

    @pytest.fixture
    def backend(self, standing: Callable[[str], tuple[QemuBackend, NewSpec]]) -> Backend:
        return standing(PYTHON_IMAGE)[0]
