"""Native-process kernels, really started, with bubblewrap and without: the contract, and what only they have."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import psutil
import pytest

from backendai.agent.accelerators.base import Device, Found, Grant, Part
from backendai.agent.accelerators.cuda_grant import grant_to_process
from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.accelerators.inventory import Mock as MockAccelerator
from backendai.agent.backends.base import BackendError, StartFailed
from backendai.agent.backends.native import cgroup as process_cgroup
from backendai.agent.backends.native import notes as process_notes
from backendai.agent.backends.native import sandbox as process_sandbox
from backendai.agent.backends.native import start as process_start
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.native.folder import KernelFolder
from backendai.agent.backends.native.sandbox import Isolation, probe
from tests.agent.backend_contract import BackendContract
from tests.agent.cluster_tools import cluster_specs, run
from tests.agent.contract_tools import NewSpec, ended_of, read_until
from tests.agent.prerequisites import need_program, need_root
from tests.agent.specs import make_spec
from tests.certificates import certificate
from tests.patience import until

HERE = probe()
NO_SANDBOX = Isolation(None, "the test wants none", root=os.geteuid() == 0)
START_AND_DIE = """
import os, signal, sys
from pathlib import Path
from backendai.agent.backends.native.backend import NativeBackend
from backendai.base.wire.messages import KernelSpec
backend = NativeBackend(Path(sys.argv[1]), deployment="test", agent="n1")
backend.start(KernelSpec.model_validate_json(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""

DIE_WHILE_STARTING = START_AND_DIE.replace(
    "backend = ", "from backendai.agent.backends.native import supervisors\n"
    "supervisors.select.select = lambda *ends: os.kill(os.getpid(), signal.SIGKILL)\nbackend = "
)  # fmt: skip


@pytest.fixture(autouse=True)
def tmux() -> None:
    """What keeps shells."""
    need_program("tmux", "tmux")


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder that the users of kernels can reach, as they must where there is no sandbox."""
    folder = Path(tempfile.mkdtemp(prefix="process-backend-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["sandbox", pytest.param("plain", marks=pytest.mark.long)])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Isolation:
    if request.param == "sandbox" and HERE.bwrap is None:
        need_program("bwrap", "bubblewrap")
        pytest.skip(f"this machine allows no sandbox: {HERE.why_not}")
    chosen = HERE if request.param == "sandbox" else NO_SANDBOX
    monkeypatch.setattr(process_start, "probe", lambda: chosen)
    return chosen


class OneGpu(MockAccelerator):
    """A GPU that the driver's device files of this machine stand for."""

    kind = "cuda"
    paths = ("/dev/net/tun",)

    def __init__(self) -> None:
        super().__init__({})

    def discover(self) -> Found:
        return Found((Device("GPU-0", "cuda.device", paths=self.paths),), is_present=True)

    def native(self, parts: Sequence[Part]) -> Grant:
        return grant_to_process(parts)


@pytest.fixture
def opened(data: Path, isolation: Isolation) -> Iterator[Callable[..., NativeBackend]]:
    """Opens backends; in the end every kernel is removed, and nothing of them is left on the machine."""
    backends = []

    def open_one(deployment: str = "test", accelerators: Accelerators | None = None) -> NativeBackend:
        backends.append(NativeBackend(data, deployment=deployment, agent="n1", accelerators=accelerators))
        return backends[-1]

    yield open_one
    for backend in backends:
        for kernel in backend.kernels():
            backend.remove(kernel.kernel_id)
        backend.close()
    assert list((data / "kernels").iterdir()) == []


@pytest.fixture
def backend(opened: Callable[..., NativeBackend]) -> NativeBackend:
    return opened()


@pytest.fixture
def new_spec() -> NewSpec:
    return partial(make_spec, image=IMAGE)


@pytest.fixture
def without_cgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_cgroup, "find_parents", list)


def processes_of(kernel_id: UUID) -> list[psutil.Process]:
    """Return the processes that carry the kernel's mark, without its supervisor."""
    marked = {"BACKENDAI_KERNEL_ID": str(kernel_id)}
    found = psutil.process_iter(["environ", "name"])
    return [one for one in found if marked.items() <= (one.info["environ"] or {}).items()]


def names_of(kernel_id: UUID) -> list[str]:
    """Return the names that its processes had when they were looked at: they may be gone by now."""
    return [one.info["name"] for one in processes_of(kernel_id)]


def run_to_end(backend: NativeBackend, new_spec: NewSpec, command: str, **over: object) -> str:
    """Run a batch kernel and return what it printed."""
    spec = new_spec(session_type="batch", command=command, **over)
    backend.start(spec)
    ended_of(backend, spec.kernel_id)
    return backend.read_log(spec.kernel_id, limit=100_000)[0].decode()


def test_its_programs_find_the_sites_authorities(backend: NativeBackend, new_spec: NewSpec) -> None:
    command = 'cat "$NODE_EXTRA_CA_CERTS"; grep -c BEGIN "$SSL_CERT_FILE"; echo "$PIP_CERT"'
    spec = {"authorities": certificate(), "environ": {"PIP_CERT": "/mine.pem"}}
    *lines, count, own = run_to_end(backend, new_spec, command, **spec).splitlines()
    assert "\n".join(lines) + "\n" == certificate()
    assert int(count) > 50
    assert own == "/mine.pem"


def test_kernels_of_one_session_log_in_to_each_other(
    backend: NativeBackend, new_spec: NewSpec, isolation: Isolation
) -> None:
    if isolation.walks_alone:
        pytest.skip("their users have no account: the next test looks at them")
    need_program("sshd", "openssh-server")
    specs = cluster_specs(partial(new_spec, pids=512), ["main1", "sub1"], native=True)
    log = run(backend, specs)
    assert "rank 0 of 2 on main1" in log and "rank 1 of 2 on sub1" in log
    assert backend.left_out(specs[0].kernel_id) == ""
    kept = (backend.home_folder(specs[0].kernel_id) or Path()).parent / "spec.json"
    assert specs[0].keys is not None and specs[0].keys.login not in kept.read_text()


def test_users_without_an_account_get_no_ssh_and_the_session_says_so(
    backend: NativeBackend, new_spec: NewSpec, isolation: Isolation
) -> None:
    if not isolation.walks_alone:
        pytest.skip("their users have an account: the test before looks at them")
    command = 'cat "$OMPI_MCA_orte_default_hostfile"; ls -A ~/.ssh; exec true'
    specs = cluster_specs(partial(new_spec, pids=512), ["main1", "sub1"], native=True, command=command)
    assert run(backend, specs).splitlines()[:2] == ["main1 slots=1", "sub1 slots=2"]
    assert "installs bubblewrap" in backend.left_out(specs[0].kernel_id)
    guest = (backend.home_folder(specs[0].kernel_id) or Path()).parent / "guest"
    assert (guest / "hostfile").exists() and not (guest / "ssh").exists()


class TestProcessBackend(BackendContract):
    """The contract. Under tmux a new size arrives a moment later, so the question about it waits for it."""

    keeps_terminals = True
    loses_a_process_to_its_limit = "python3 -c 'bytearray(300 << 20)'"
    size_question = b'until [ "$(stty size)" = "37 $((110 + 1))" ]; do sleep 0.1; done; echo $((30 + 7)) 111\n'

    @pytest.fixture
    def neighbour(self, opened: Callable[..., NativeBackend]) -> NativeBackend:
        return opened("other")

    @pytest.fixture
    def reopened(self, opened: Callable[..., NativeBackend]) -> Callable[[], NativeBackend]:
        return opened


def test_it_leaves_kernels_alone_when_the_agent_is_killed(
    data: Path, backend: NativeBackend, new_spec: NewSpec
) -> None:
    spec = new_spec()
    script = [sys.executable, "-c", START_AND_DIE, str(data), spec.model_dump_json()]
    assert subprocess.run(script, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
    adopted = backend.start(spec)
    assert adopted.adopted
    assert backend.ended(spec.kernel_id) is None


def test_it_leaves_a_kernel_alone_when_the_agent_is_killed_while_it_starts(
    data: Path, backend: NativeBackend, new_spec: NewSpec
) -> None:
    spec = new_spec(session_type="batch", command="sleep 1; echo here; sleep 1000")
    script = [sys.executable, "-c", DIE_WHILE_STARTING, str(data), spec.model_dump_json()]
    assert subprocess.run(script, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
    until(lambda: b"here" in backend.read_log(spec.kernel_id, limit=100)[0])
    assert backend.start(spec).adopted
    assert backend.ended(spec.kernel_id) is None


@pytest.fixture
def fill_disk(backend: NativeBackend, data: Path) -> Iterator[Callable[[], None]]:
    """A small disk for the kernels, and what fills it."""
    need_root("A small disk is mounted")
    kernels = data / "kernels"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0711", "small", str(kernels)], check=True)

    def fill() -> None:
        with (kernels / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        assert os.statvfs(kernels).f_bavail == 0

    yield fill
    subprocess.run(["umount", "-l", str(kernels)], check=True)


def test_it_keeps_the_exit_code_when_the_disk_is_full(
    backend: NativeBackend, fill_disk: Callable[[], None], new_spec: NewSpec
) -> None:
    spec = new_spec(session_type="batch", command="sleep 1; exit 7")
    backend.start(spec)
    fill_disk()
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (7, "exited")


@pytest.mark.parametrize("with_supervisor", [True, False])
def test_it_ends_and_removes_a_kernel_when_the_disk_is_full(
    backend: NativeBackend, data: Path, fill_disk: Callable[[], None], new_spec: NewSpec, with_supervisor: bool
) -> None:
    spec = new_spec()
    backend.start(spec)
    runner = KernelFolder(data / "kernels" / str(spec.kernel_id)).runner()
    fill_disk()
    if not with_supervisor:
        assert runner
        os.kill(runner, signal.SIGKILL)
    backend.stop(spec.kernel_id, grace=1)
    assert backend.ended(spec.kernel_id)
    backend.remove(spec.kernel_id)
    assert backend.kernels() == []
    assert processes_of(spec.kernel_id) == []


def test_it_ends_its_kernels_with_the_agent_and_says_why(backend: NativeBackend, new_spec: NewSpec) -> None:
    spec = new_spec()
    backend.start(spec)
    backend.close()
    ended = backend.ended(spec.kernel_id)
    assert ended is not None and ended.reason == "agent-stopped"
    assert "agent" in ended.message
    assert [kernel.running for kernel in backend.kernels()] == [False]
    assert processes_of(spec.kernel_id) == []


def test_it_ends_what_hides_from_the_kernels_main_process(backend: NativeBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_type="batch", command="setsid -f sleep 1000; echo ready; sleep 1000")
    backend.start(spec)
    until(lambda: b"ready" in backend.read_log(spec.kernel_id, limit=100)[0])
    backend.stop(spec.kernel_id, grace=1)
    assert processes_of(spec.kernel_id) == []


def test_it_ends_the_rest_when_the_main_process_ends(backend: NativeBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_type="batch", command="setsid -f sleep 1000; exit 0")
    backend.start(spec)
    ended_of(backend, spec.kernel_id)
    until(lambda: processes_of(spec.kernel_id) == [])


def test_it_reports_and_clears_up_after_a_killed_supervisor(
    backend: NativeBackend, data: Path, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    runner = KernelFolder(data / "kernels" / str(spec.kernel_id)).runner()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (None, "exited")
    assert "supervisor" in ended.message
    until(lambda: processes_of(spec.kernel_id) == [])


def test_it_takes_no_later_process_with_the_same_pid_for_its_own(
    backend: NativeBackend, data: Path, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    folder = KernelFolder(data / "kernels" / str(spec.kernel_id))
    runner = folder.read("runner")
    folder.write("runner", runner | {"started": runner["started"] - 1})
    assert [kernel.running for kernel in backend.kernels()] == [False]
    folder.write("runner", runner)
    assert [kernel.running for kernel in backend.kernels()] == [True]


@pytest.mark.parametrize("hard", [True, False])
def test_it_ends_a_kernel_that_takes_too_much_memory(
    hard: bool, request: pytest.FixtureRequest, isolation: Isolation, new_spec: NewSpec
) -> None:
    if not hard:
        request.getfixturevalue("without_cgroups")
    backend = request.getfixturevalue("backend")
    command = "python3 -c 'import time; hoard = bytearray(150 << 20); time.sleep(1000)'"
    spec = new_spec(session_type="batch", command=command)
    backend.start(spec)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (137, "out-of-memory")
    assert "64 MiB" in ended.message


def test_it_lets_a_kernel_use_its_memory(backend: NativeBackend, without_cgroups: None, new_spec: NewSpec) -> None:
    command = "python3 -c 'import time; hoard = bytearray(100 << 20); time.sleep(3)'; echo fine"
    assert "fine" in run_to_end(backend, new_spec, command, slots={"cpu": "0.5", "mem": str(256 * 2**20)})


def test_it_keeps_the_newest_output_within_its_size(backend: NativeBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_type="batch", command="seq 100000", log_bytes=100_000)
    backend.start(spec)
    ended_of(backend, spec.kernel_id)
    log, cut = backend.read_log(spec.kernel_id, limit=10**6)
    assert cut
    assert 30_000 < len(log) < 200_000
    assert log.endswith(b"\n99999\n100000\n")
    first = int(log.split()[1])
    assert log.split()[1:] == [str(number).encode() for number in range(first, 100_001)]


@pytest.mark.asyncio
async def test_it_follows_a_log_beyond_a_rotation(backend: NativeBackend, new_spec: NewSpec) -> None:
    command = "for page in 1 2 3; do seq 2000; sleep 1; done"
    spec = new_spec(session_type="batch", command=command, log_bytes=24_000)
    await asyncio.to_thread(backend.start, spec)
    async with asyncio.timeout(60):
        pieces = [piece async for piece in backend.follow_log(spec.kernel_id, tail=None, follow=True)]
    assert b"".join(pieces).split() == [str(number).encode() for number in range(1, 2001)] * 3


def test_it_gives_a_kernel_a_home_a_python_and_its_environment(
    backend: NativeBackend, isolation: Isolation, new_spec: NewSpec
) -> None:
    command = 'pwd; echo $HOME; touch here; echo $COLOUR; python -c "print(6 * 7)"; id -un 2>&1'
    said = run_to_end(backend, new_spec, command, environ={"COLOUR": "green"}, hostname="main1").split()
    assert said[0] == said[1]
    assert said[2:4] == ["green", "42"]
    assert isolation.bwrap is None or said[4:] == ["work"]


def test_it_tells_a_kernel_of_its_gpus_and_shows_it_no_other_device_files(
    opened: Callable[..., NativeBackend], isolation: Isolation, new_spec: NewSpec
) -> None:
    accelerators = Accelerators([OneGpu()])
    accelerators.look()
    backend = opened(accelerators=accelerators)
    command = 'echo "$CUDA_VISIBLE_DEVICES:$NVIDIA_VISIBLE_DEVICES:$GPU_COUNT"; ls /dev/net/tun /dev/kmsg 2>/dev/null'
    told = run_to_end(backend, new_spec, command, devices={"cuda.device": {"GPU-0": "1"}}).split()
    wish = {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}
    told_without = run_to_end(backend, new_spec, command, environ=wish).split()
    assert (told[0], told_without[0]) == ("GPU-0:GPU-0:1", ":void:0")
    if isolation.bwrap:
        assert told[1:] == [path for path in OneGpu.paths if Path(path).exists()]
        assert told_without[1:] == []


def test_it_runs_a_kernel_without_privileges(backend: NativeBackend, new_spec: NewSpec) -> None:
    command = "id -u; grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status | tr '\\n' ' '"
    user, *status = run_to_end(backend, new_spec, command).split()
    assert user != "0"
    assert status == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1"]


def test_its_user_can_read_the_machines_certificates(backend: NativeBackend, new_spec: NewSpec) -> None:
    """Without, no program verifies a server, and node does not even start."""
    command = "ls /etc/ssl/certs >/dev/null && cat /etc/ssl/openssl.cnf >/dev/null && echo read them"
    assert run_to_end(backend, new_spec, command).strip() == "read them"


def test_it_keeps_a_users_variables_from_what_still_has_rights(
    backend: NativeBackend, new_spec: NewSpec, tmp_path: Path
) -> None:
    """The dynamic linker writes such a trace for every program that it starts; only root could write it there."""
    need_root("only an agent of root has rights to give up")
    traced = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(tmp_path / "trace"), "COLOUR": "green"}
    tmp_path.chmod(0o700)
    assert "green" in run_to_end(backend, new_spec, 'echo "$COLOUR"', environ=traced).split()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("isolation", ["sandbox"], indirect=True)
def test_it_hides_the_machine_inside_a_sandbox(backend: NativeBackend, data: Path, new_spec: NewSpec) -> None:
    said = run_to_end(
        backend, new_spec, f"ls / /tmp; cat /etc/shadow; ls {data}; ls /proc | grep -c '^[0-9]'; hostname"
    )
    assert data.name not in said.replace(f"{data}'", "")
    assert "/etc/shadow: No such file" in said
    assert int(said.split()[-2]) < 10
    assert said.split()[-1] == "main1"


@pytest.fixture(params=["/opt", "/usr/local"])
def shown(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder with secrets below one that every sandbox shows."""
    need_root(f"only root writes to {request.param}")
    folder = Path(tempfile.mkdtemp(prefix="platform-of-a-test-", dir=request.param))
    folder.chmod(0o755)
    for name in ("code", "var", "var/n1"):
        (folder / name).mkdir()
        (folder / name / "secrets.json").write_text("the key")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("isolation", ["sandbox"], indirect=True)
def test_it_hides_the_platform_itself_inside_a_sandbox(
    isolation: Isolation, shown: Path, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_sandbox, "CODE", shown / "code")
    monkeypatch.setenv("BACKENDAI_DATA", str(shown / "var"))
    (shown / "others").write_text("for everybody")
    backend = NativeBackend(shown / "var" / "n1", deployment="test", agent="n1")
    command = f"cd {shown}; cat code/* var/* var/n1/* others; touch code/x var/x; echo hello >~/file; cat ~/file"
    try:
        said = run_to_end(backend, new_spec, f"{command}; python3 -V")
        for kernel in backend.kernels():
            backend.remove(kernel.kernel_id)
    finally:
        backend.close()
    assert "the key" not in said and "for everybody" in said
    assert said.count("Read-only file system") == 2
    assert "hello" in said and "Python 3" in said


def test_python_stays_where_a_hidden_folder_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = tmp_path / "platform" / "python"
    (prefix / "lib" / "data").mkdir(parents=True)
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    monkeypatch.setattr(process_sandbox, "_READABLE", (str(tmp_path),))
    words = list(
        process_sandbox._covers([tmp_path / "platform", tmp_path / "platform" / "var", prefix / "lib" / "data"])
    )
    mounts = [
        (word, words[at + 1]) for at, word in enumerate(words) if word in ("--tmpfs", "--ro-bind", "--remount-ro")
    ]
    assert mounts == [
        ("--tmpfs", str(tmp_path / "platform")),
        ("--ro-bind", str(prefix)),
        ("--remount-ro", str(tmp_path / "platform")),
        ("--tmpfs", str(prefix / "lib" / "data")),
        ("--remount-ro", str(prefix / "lib" / "data")),
    ]


def test_it_limits_the_number_of_processes(backend: NativeBackend, isolation: Isolation, new_spec: NewSpec) -> None:
    if isolation.bwrap is None:
        need_root("without a sandbox only users given by root have counts of their own")
    said = run_to_end(backend, new_spec, "for i in $(seq 40); do sleep 5 & done 2>&1; jobs | wc -l", pids=20)
    assert "unavailable" in said or "fork" in said


def test_it_keeps_kernels_of_root_from_each_other(backend: NativeBackend, new_spec: NewSpec) -> None:
    need_root("only root gives users")
    one, other = (run_to_end(backend, new_spec, "id -u").strip() for _ in range(2))
    assert one != other


def test_it_leaves_nothing_of_a_start_that_failed(
    data: Path, isolation: Isolation, opened: Callable[..., NativeBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Isolation("/bin/false", "", isolation.root)
    monkeypatch.setattr(process_start, "probe", lambda: broken)
    backend = opened()
    with pytest.raises(StartFailed):
        backend.start(make_spec(image=IMAGE, create_timeout=20))
    assert list((data / "kernels").iterdir()) == []
    assert backend.kernels() == []


def test_it_sweeps_away_a_start_that_came_to_nothing(backend: NativeBackend, data: Path, new_spec: NewSpec) -> None:
    spec = new_spec()
    folder = KernelFolder(data / "kernels" / str(spec.kernel_id))
    folder.path.mkdir()
    folder.write("spec", spec.model_dump(mode="json"))
    backend.sweep({spec.kernel_id})
    assert folder.path.exists()
    backend.sweep(set())
    assert not folder.path.exists()


def test_it_deletes_what_a_kernel_made_unreadable(backend: NativeBackend, data: Path, new_spec: NewSpec) -> None:
    run_to_end(backend, new_spec, "mkdir -p shut/deep; touch shut/deep/file; chmod 0 shut/deep shut; chmod 500 ~")
    (kernel,) = backend.kernels()
    backend.remove(kernel.kernel_id)
    assert list((data / "kernels").iterdir()) == []


@pytest.mark.asyncio
async def test_it_leaves_the_shell_but_no_client_behind_a_closed_terminal(
    backend: NativeBackend, new_spec: NewSpec
) -> None:
    spec = new_spec()
    await asyncio.to_thread(backend.start, spec)
    terminal = await backend.open_terminal(spec.kernel_id, name="one", rows=24, cols=80)
    await terminal.write(b"echo mark-$((40 + 2))\n")
    await read_until(terminal, b"mark-42")
    assert sum(name.startswith("tmux: client") for name in names_of(spec.kernel_id)) == 1
    await terminal.close()
    await asyncio.to_thread(
        until, lambda: not [name for name in names_of(spec.kernel_id) if name.startswith("tmux: client")]
    )
    assert [name for name in names_of(spec.kernel_id) if name.startswith("tmux: server")]


def test_it_says_what_it_does_not_protect(
    opened: Callable[..., NativeBackend], isolation: Isolation, without_cgroups: None
) -> None:
    notes = {note.code: note for note in opened().notes()}
    wanted = {"process-no-containers", "process-shared-network", "process-soft-limits"}
    assert notes.keys() == wanted | ({"process-no-sandbox"} if isolation.bwrap is None else set())
    assert [code for code, note in notes.items() if "Docker Engine" in note.fix] == ["process-no-containers"]


@pytest.mark.parametrize(
    ("installed", "root", "needed", "useless"),
    [
        (False, False, "bubblewrap (and allow user namespaces)", "sysctl"),
        (False, True, "bubblewrap (and allow user namespaces)", "privileged container"),
        (True, False, "allow user namespaces (sysctl", "privileged container"),
        (True, True, "in a privileged container", "sysctl"),
    ],
)
def test_it_tells_a_sandbox_that_is_missing_from_one_that_is_forbidden(
    installed: bool, root: bool, needed: str, useless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_notes.shutil, "which", lambda name: f"/usr/bin/{name}" if installed else None)
    places = Mock(fault="", new="/data/kernels", inside="/data/kernels")
    notes = process_notes.describe(Isolation(None, "the test says so", root), hard_limits=True, places=places)
    fixes = {note.code: note.fix for note in notes}
    assert needed in fixes["process-no-sandbox"]
    assert ("Install" in fixes["process-no-sandbox"]) is not installed
    assert (needed in fixes["process-no-containers"]) is (installed and root)
    assert not any(useless in fix for fix in fixes.values())
    assert "start it where it is installed" in fixes["process-no-containers"]


def test_it_can_fetch_no_image(backend: NativeBackend) -> None:
    with pytest.raises(BackendError, match="no container engine"):
        backend.pull("registry.example/python:3.12", timeout=1, progress=lambda fetched: None)


def test_it_starts_kernels_in_a_folder_with_a_long_name(isolation: Isolation, data: Path, new_spec: NewSpec) -> None:
    backend = NativeBackend(data / ("long" * 30), deployment="test", agent="n1")
    spec = new_spec()
    backend.start(spec)

    async def ask() -> None:
        terminal = await backend.open_terminal(spec.kernel_id, name="a.b:c", rows=24, cols=80)
        await terminal.write(b"echo mark-$((40 + 2))\n")
        await read_until(terminal, b"mark-42")
        await terminal.close()

    try:
        asyncio.run(ask())
    finally:
        backend.remove(spec.kernel_id)


def test_it_measures_what_a_kernel_and_the_children_that_it_has_lost_use(
    backend: NativeBackend, new_spec: NewSpec
) -> None:
    command = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo burnt; sleep 1000"
    spec = new_spec(session_type="batch", command=command)
    backend.start(spec)
    until(lambda: b"burnt" in backend.read_log(spec.kernel_id, limit=100)[0])
    reading = backend.readings(backend.kernels())[spec.kernel_id]
    assert reading.cpu_seconds is not None and reading.cpu_seconds > 0.05
    assert reading.mem_bytes is not None and reading.mem_bytes > 0
