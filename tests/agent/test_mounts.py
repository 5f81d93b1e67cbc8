"""Folders on a node: opened beneath the marked root, attached apart from what is deleted, and never deleted."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from backendai.agent.backends.base import BackendError, StartFailed
from backendai.agent.backends.docker.mounts import DockerMounts
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.mounts import children
from backendai.agent.mounts.children import Children
from backendai.agent.mounts.hosts import MountRules, StorageHosts
from backendai.agent.mounts.kernel_mounts import KernelMounts
from backendai.agent.mounts.mounting import unmount_folder
from backendai.agent.settings.config import parse_storage_hosts
from backendai.base.core.errors import UserError
from backendai.base.paths.storage_layout import MARKER
from backendai.base.wire.mounts import MountSpec
from tests.agent.contract_tools import ended_of
from tests.agent.prerequisites import need_program, need_root
from tests.agent.specs import make_spec
from tests.mount_tools import folder_on_disk, root_on_disk

_NOBODY = 65534
OWNER = 1000 if os.geteuid() == 0 else os.geteuid()
RULES = MountRules(uids=frozenset({OWNER}), attaches=os.geteuid() == 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return root_on_disk(tmp_path / "storage", deployment="test", uid=OWNER)


@pytest.fixture
def hosts(root: Path) -> StorageHosts:
    return StorageHosts({"local": root}, (root.parent / "linked",), "test")


@pytest.fixture
def mounts(hosts: StorageHosts, tmp_path: Path) -> KernelMounts:
    return KernelMounts(tmp_path / "agent", hosts)


def mount_of(folder_id: Any, target: str = "/home/work/data", **over: Any) -> MountSpec:
    values = {"host": "local", "folder_name": "data", "rights": "edit"}
    return MountSpec(folder_id=folder_id, target=target, **(values | over))


def refused(mounts: KernelMounts, *wanted: MountSpec, rules: MountRules = RULES) -> StartFailed:
    with pytest.raises(StartFailed) as caught:
        mounts.prepare(make_spec(mounts=list(wanted)), rules)
    assert not mounts.root.exists() or not list(mounts.root.iterdir())
    return caught.value


def mounted_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split(" ")[4] for line in lines if line.split(" ")[4].startswith(str(folder))]


def test_a_container_with_another_directory_in_the_place_of_a_folder_is_refused(
    mounts: KernelMounts, root: Path
) -> None:
    """This process stands in for the container: it sees both folders, writable, and mounted by name as ordered."""
    need_root("only root attaches mounts")
    mine, other = uuid4(), uuid4()
    for folder in (mine, other):
        folder_on_disk(root, folder, uid=OWNER)
    bound, foreign = mounts.prepare(make_spec(mounts=[mount_of(mine), mount_of(other, "/data")]), RULES).all
    spec = make_spec(mounts=[mount_of(mine, target=bound.source)])

    def container(source: str) -> DockerMounts:
        told = {"Mounts": [{"Destination": bound.source, "Source": source, "RW": True}], "State": {"Pid": os.getpid()}}
        client = SimpleNamespace(inspect_container=lambda name: told)
        return DockerMounts(SimpleNamespace(client=client), mounts, lambda: RULES)  # type: ignore[arg-type]

    container(bound.source).check(spec)
    with pytest.raises(StartFailed, match="is not mounted on"):
        container(foreign.source).check(spec)
    mounts.sweep(set())


def test_it_attaches_what_was_ordered_and_takes_only_the_mount_away(mounts: KernelMounts, root: Path) -> None:
    need_root("only root attaches mounts")
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    (data / "part").mkdir()
    (data / "part" / "file").write_text("kept")
    spec = make_spec(
        mounts=[mount_of(folder), mount_of(folder, "/data", rights="view"), mount_of(folder, "/p", sub_path="part")]
    )
    whole, view, part = mounts.prepare(spec, RULES).all
    assert (Path(whole.source) / "part" / "file").read_text() == (Path(part.source) / "file").read_text() == "kept"
    with pytest.raises(OSError, match="Read-only"):
        (Path(view.source) / "new").write_text("x")
    assert [bind.read_only for bind in (whole, view, part)] == [False, True, False]
    again = mounts.prepare(spec, RULES)  # as for a kernel that runs already
    assert len(mounted_below(mounts.root)) == 3 and [one.source for one in again.all] == [
        one.source for one in (whole, view, part)
    ]
    mounts.sweep({spec.kernel_id})
    assert len(mounted_below(mounts.root)) == 3
    mounts.sweep(set())  # as after an agent that was killed
    assert mounted_below(mounts.root) == [] and list(mounts.root.iterdir()) == []
    assert (data / "part" / "file").read_text() == "kept"


def test_two_agents_on_one_shared_path_see_the_same_and_let_each_other_be(root: Path, tmp_path: Path) -> None:
    need_root("only root attaches mounts")
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    agents = [KernelMounts(tmp_path / name, StorageHosts({"local": root}, (), "test")) for name in ("one", "two")]
    specs = [make_spec(mounts=[mount_of(folder)]), make_spec(mounts=[mount_of(folder, rights="view")])]
    (first,), (second,) = (agent.prepare(spec, RULES).all for agent, spec in zip(agents, specs, strict=True))
    try:
        (Path(first.source) / "model").write_text("of one")
        assert (Path(second.source) / "model").read_text() == "of one"
        with pytest.raises(OSError, match="Read-only"):
            (Path(second.source) / "model").write_text("of two")
        agents[0].sweep(set())  # it has lost its kernel
        assert not mounted_below(tmp_path / "one") and len(mounted_below(tmp_path / "two")) == 1
        assert (Path(second.source) / "model").read_text() == "of one"
    finally:
        for agent in agents:
            agent.sweep(set())
    assert not mounted_below(tmp_path) and (data / "model").read_text() == "of one"


def test_without_the_right_to_mount_it_gives_the_path_of_the_folder(mounts: KernelMounts, root: Path) -> None:
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    rules = MountRules(uids=frozenset({OWNER}))
    assert [one.source for one in mounts.prepare(make_spec(mounts=[mount_of(folder)]), rules).all] == [str(data)]
    assert "only an agent of root" in refused(mounts, mount_of(folder, sub_path="a"), rules=rules).message
    plain = MountRules(uids=frozenset({OWNER}), read_only=False)
    assert "bubblewrap" in refused(mounts, mount_of(folder, rights="view"), rules=plain).message


def test_nothing_is_mounted_from_a_root_without_its_marker(mounts: KernelMounts, root: Path) -> None:
    folder = uuid4()
    folder_on_disk(root, folder, uid=OWNER)
    (root / MARKER).rename(root / "gone")
    assert refused(mounts, mount_of(folder)).code == "storage-missing"
    assert refused(mounts, mount_of(folder, host="other")).code == "storage-missing"
    (root / "gone").rename(root / MARKER)
    mounts.hosts.deployment = "another"
    assert refused(mounts, mount_of(folder)).code == "storage-missing"


def test_links_lead_nowhere(mounts: KernelMounts, root: Path, tmp_path: Path) -> None:
    need_root("a part of a folder is mounted by root alone")
    folder, secret = uuid4(), tmp_path / "secret"
    data = folder_on_disk(root, folder, uid=OWNER)
    secret.mkdir()
    (data / "out").symlink_to(secret)
    (data / "file").write_text("x")
    for path in ("out", "out/x", "file", "missing"):
        assert refused(mounts, mount_of(folder, sub_path=path)).code == "folder-missing"
    assert refused(mounts, mount_of(folder, sub_path="../..")).code == "mount-refused"
    data.rename(data.parent / "moved")
    data.symlink_to(secret)
    assert refused(mounts, mount_of(folder)).code == "folder-missing"
    assert refused(mounts, mount_of(uuid4())).code == "folder-missing"


def test_a_kernel_starts_without_automatic_folders_but_not_without_others(mounts: KernelMounts, root: Path) -> None:
    folder = uuid4()
    folder_on_disk(root, folder, uid=OWNER)
    lost = mount_of(uuid4(), "/home/work/.cache", is_automatic=True)
    spec = make_spec(mounts=[mount_of(folder), lost])
    assert [bind.target for bind in mounts.prepare(spec, RULES).all] == ["/home/work/data"]
    assert mounts.left_out(spec.kernel_id).startswith(f"Not mounted on this agent: {lost.folder_name}. ")
    assert len(mounts.left_out(spec.kernel_id)) > len(f"Not mounted on this agent: {lost.folder_name}. "), "and why"
    mounts.remove(spec.kernel_id)
    assert mounts.left_out(spec.kernel_id) == ""
    assert mounts.prepare(make_spec(mounts=[lost]), RULES).all == ()
    assert mounts.prepare(make_spec(mounts=[lost]), MountRules(fault="Nothing is mounted here.")).all == ()
    assert refused(mounts, mount_of(uuid4()), lost).code == "folder-missing"


def test_files_of_a_user_as_whom_no_kernel_runs_are_not_mounted(mounts: KernelMounts, root: Path) -> None:
    folder = uuid4()
    folder_on_disk(root, folder, uid=OWNER)
    rules = MountRules(uids=frozenset({OWNER + 1}))
    assert f"user {OWNER}" in refused(mounts, mount_of(folder), rules=rules).message
    mounts.hosts.look(rules)
    (report,) = mounts.hosts.reports()
    assert report.fault == f"Its files belong to user {OWNER}; kernels of this agent run as user {OWNER + 1}."


def test_a_linked_path_is_mounted_read_only_where_the_node_allows_it(mounts: KernelMounts, tmp_path: Path) -> None:
    need_root("only root attaches mounts")
    (tmp_path / "linked" / "set").mkdir(parents=True)
    (tmp_path / "linked" / "set" / "file").write_text("x")
    linked = str(tmp_path / "linked" / "set")
    spec = make_spec(mounts=[mount_of(uuid4(), linked_path=linked, rights="view")])
    (bind,) = mounts.prepare(spec, RULES).all
    assert (Path(bind.source) / "file").read_text() == "x"
    mounts.remove(spec.kernel_id)
    for path, rights in ((linked, "edit"), ("/etc", "view"), (f"{linked}/../../secret", "view")):
        assert refused(mounts, mount_of(uuid4(), linked_path=path, rights=rights)).code == "mount-refused"


def test_the_hosts_tell_their_faults_and_what_they_can(hosts: StorageHosts, root: Path) -> None:
    assert hosts.reports() == []
    assert hosts.look(RULES)
    (report,) = hosts.reports()
    assert (report.name, report.fault, report.read_only) == ("local", "", True)
    assert report.sub_paths is (os.geteuid() == 0) and (report.free_bytes or 0) > 0
    assert not hosts.look(RULES)
    (root / MARKER).unlink()
    assert hosts.look(RULES)
    assert "not mounted" in hosts.reports()[0].fault
    assert hosts.look(MountRules(fault="Nothing is mounted here."))
    assert hosts.reports()[0].fault == "Nothing is mounted here."


SLOW = "import sys, time; sys.stdin.read(); time.sleep(600)"


def test_a_host_that_does_not_answer_holds_up_nothing_else(
    hosts: StorageHosts, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.paths = {"local": root, "nfs": root}
    hosts.children = Children(deadline=0.2)
    real = children._CODE
    monkeypatch.setattr(children, "_CODE", SLOW)
    with pytest.raises(StartFailed) as caught:
        hosts.children.run(hosts.order("nfs", "look"))
    assert (caught.value.code, hosts.children.stuck()) == ("storage-silent", 0)  # it could be killed
    monkeypatch.setattr(children, "_CODE", real)
    monkeypatch.setattr(hosts.children, "_deadline", 30.0)
    assert hosts.children.run(hosts.order("local", "look"))["uid"] == OWNER


class Unkillable:
    """A process that waits for a server: signals wait with it."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    def kill(self) -> None: ...

    def communicate(self, *_: Any, timeout: float) -> Any:
        raise subprocess.TimeoutExpired("child", timeout)

    def wait(self, timeout: float) -> int:
        raise subprocess.TimeoutExpired("child", timeout)

    def poll(self) -> int | None:
        return 0 if self.has_ended.is_set() else None


def test_at_most_four_children_are_stuck_and_one_of_a_host(
    hosts: StorageHosts, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.paths = {f"nfs{number}": root for number in range(6)}
    made: list[Unkillable] = []

    def popen(*_: Any, **__: Any) -> Unkillable:
        made.append(Unkillable())
        return made[-1]

    monkeypatch.setattr(children.subprocess, "Popen", popen)
    for _ in range(2):
        for name in hosts.paths:
            with pytest.raises(StartFailed):
                hosts.children.run(hosts.order(name, "look"))
    assert len(made) == children.MOST_STUCK == hosts.children.stuck()
    made[0].has_ended.set()
    assert hosts.children.stuck() == 3


@pytest.mark.parametrize("text", ["local", "local=data", "Local=/x", "a=/x,a=/y", "=/x"])
def test_a_wrong_setting_is_refused_in_words(text: str) -> None:
    with pytest.raises(UserError, match="BACKENDAI_STORAGE_HOSTS"):
        parse_storage_hosts(text)


def test_the_setting_names_hosts_and_paths() -> None:
    assert parse_storage_hosts(" a=/x , b-2=/y/z ,") == {"a": Path("/x"), "b-2": Path("/y/z")}


@pytest.fixture
def native(hosts: StorageHosts, tmp_path: Path) -> Any:
    backend = NativeBackend(tmp_path / "agent", deployment="test", agent="n1", hosts=hosts)
    yield backend
    backend.close()
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)


Run = Callable[..., str]


@pytest.fixture
def run(native: NativeBackend) -> Run:
    """Run a batch kernel with mounts to its end, remove it and return what it printed."""

    def run(command: str, *wanted: MountSpec, **over: Any) -> str:
        spec = make_spec(image=IMAGE, session_type="batch", command=command, mounts=list(wanted), **over)
        native.start(spec)
        ended_of(native, spec.kernel_id)
        output = native.read_log(spec.kernel_id, limit=10_000)[0].decode()
        native.remove(spec.kernel_id)
        return output

    return run


def test_native_kernels_share_a_folder_one_after_the_other(
    run: Run, native: NativeBackend, root: Path, tmp_path: Path
) -> None:
    need_program("bwrap", "bubblewrap")
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    assert run("echo hello >data/file; mkdir data/deep; pwd", mount_of(folder)) == "/home/work\n"
    assert (data / "file").stat().st_uid == OWNER
    alias = mount_of(folder, "/home/work/a/b", rights="view")
    output = run("pwd; cat file; echo x >>file; rm -f file", alias, start_in="/home/work/a/b")
    assert output.startswith("/home/work/a/b\nhello\n") and output.count("Read-only file system") == 2
    assert (data / "file").read_text() == "hello\n" and (data / "deep").is_dir()
    assert mounted_below(tmp_path) == [] and list((tmp_path / "agent" / "kernels").iterdir()) == []


def test_a_native_kernel_is_cut_off_from_a_folder_and_goes_on(
    native: NativeBackend, root: Path, tmp_path: Path
) -> None:
    need_program("bwrap", "bubblewrap")
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    loop = "sleep 600 3>data/held & until ! kill -0 $! 2>/dev/null; do sleep 0.05; done; ls data >seen; sleep 600"
    spec = make_spec(image=IMAGE, session_type="batch", command=loop, mounts=[mount_of(folder)])
    native.start(spec)
    home = native.home_folder(spec.kernel_id)
    assert home is not None
    _until((data / "held").exists)
    assert native.cut_folder(spec.kernel_id, folder) == 1
    _until((home / "seen").exists)
    assert (home / "seen").read_text() == "" and (data / "held").exists()
    assert native.ended(spec.kernel_id) is None
    with pytest.raises(BackendError, match="No program of this session sees the folder"):
        native.cut_folder(spec.kernel_id, folder)


def test_processes_that_the_agent_does_not_see_are_no_reason_to_call_a_session_open() -> None:
    beyond = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1  # as a container sees the ids of its machine
    with pytest.raises(BackendError, match="runs in a container") as refused:
        unmount_folder([beyond], uuid4())
    assert refused.value.code == "folder-not-seen"
    with pytest.raises(BackendError) as refused:
        unmount_folder([os.getpid()], uuid4())
    assert refused.value.code == "folder-not-apart"


def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_so():
            return
        time.sleep(0.02)
    pytest.fail("it did not come to that")


def test_a_native_kernel_of_a_killed_agent_takes_nothing_with_it(
    native: NativeBackend, hosts: StorageHosts, root: Path, tmp_path: Path
) -> None:
    need_program("bwrap", "bubblewrap")
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    (data / "file").write_text("kept")
    spec = make_spec(image=IMAGE, mounts=[mount_of(folder)])
    native.start(spec)
    later = NativeBackend(tmp_path / "agent", deployment="test", agent="n1", hosts=hosts)
    later.sweep({spec.kernel_id})
    assert later.start(spec).adopted
    later.sweep(set())  # the portal does not want it, but it runs
    later.stop(spec.kernel_id, grace=0.0)
    later.remove(spec.kernel_id)
    assert (data / "file").read_text() == "kept" and mounted_below(tmp_path) == []


def test_without_a_sandbox_a_link_leads_to_a_folder_of_ones_own(
    run: Run, native: NativeBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = uuid4()
    data = folder_on_disk(root, folder, uid=OWNER)
    native._starter.isolation = replace(native._starter.isolation, bwrap=None, root=False)
    owner = os.geteuid()
    (root / MARKER).write_text((root / MARKER).read_text().replace(str(OWNER), str(owner)))
    assert run("echo x >data/file; cd data && pwd -P", mount_of(folder)) == f"{data}\n"
    assert (data / "file").read_text() == "x\n"
    with pytest.raises(StartFailed, match="read-only"):
        run("true", mount_of(folder, rights="view"))
    with pytest.raises(StartFailed, match="in the home only"):
        run("true", mount_of(folder, "/data"))
    native._starter.isolation = replace(native._starter.isolation, root=True)
    assert "bubblewrap" in native.mount_rules().fault
