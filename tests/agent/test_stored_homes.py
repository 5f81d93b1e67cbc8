"""Archives of homes: everything a home can hold comes back, and nothing that a guest wrote into one leaves it."""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native import start as native_start
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.native.cgroup import hold, members
from backendai.agent.backends.native.sandbox import Isolation, probe
from backendai.agent.backends.shared.home import fill_home
from backendai.agent.jobs.handlers import JobUnwanted
from backendai.agent.jobs.kinds import StoreHomeHandler
from backendai.agent.mounts import children
from backendai.agent.mounts.children import Children
from backendai.agent.mounts.homes import unpack_home
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.paths.storage_layout import MARKER
from backendai.base.wire.homes import StoredHome, StoreResult, StoreWork
from backendai.base.wire.messages import HomeFile, KernelSpec
from backendai.base.wire.mounts import MountSpec
from tests.agent.contract_tools import ended_of
from tests.agent.prerequisites import need_root
from tests.agent.specs import make_spec
from tests.mount_tools import folder_on_disk, root_on_disk
from tests.patience import until

IS_ROOT = os.geteuid() == 0
OWNER = 1000 if IS_ROOT else os.geteuid()
OLD = (1_000_000_000_123_456_789, 1_000_000_000_987_654_321)
FILE = "home-main1.tar"


class Bench:
    """A storage host with one folder, a home, and an agent between them."""

    def __init__(self, top: Path) -> None:
        top.chmod(0o700)  # as the data folder of an agent may be: the kernel's user does not come in by name
        self.top, self.root = top, root_on_disk(top / "storage", deployment="test", uid=OWNER)
        self.folder_id = uuid4()
        self.data = folder_on_disk(self.root, self.folder_id, uid=OWNER)
        self.hosts = StorageHosts({"local": self.root}, (), "test")
        self.place = StoredHome(host="local", folder_id=self.folder_id, folder_name="homes", file=FILE)
        self.home = top / "home"
        self.home.mkdir()
        self.backend = NativeBackend(top / "agent", deployment="test", agent="n1", hosts=self.hosts)
        self.backend._homes = lambda _: self.home
        self.told: list[int | None] = []

    def store(self, most_bytes: int | None = None, heed: Callable[[], None] = lambda: None) -> StoreResult:
        work = StoreWork(kernel_id=uuid4(), generation=1, home=self.place, most_bytes=most_bytes, timeout=60.0)

        def progress(fetched: object) -> None:
            self.told.append(fetched.done_bytes)  # type: ignore[attr-defined]
            heed()

        return self.backend.store_home(work, progress)

    def spec(self, **over: object) -> KernelSpec:
        return make_spec(home=self.place, **over)

    def unpack(self, name: str = "new", limit: int = 0) -> Path:
        new = self.top / name
        new.mkdir()
        unpack_home(self.hosts, self.spec(), new, owner=OWNER if IS_ROOT else None, limit=limit)
        return new

    def names(self) -> set[str]:
        return set(os.listdir(self.data))

    def write_archive(self, *members: tuple[tarfile.TarInfo, bytes]) -> None:
        with tarfile.open(self.data / FILE, "w") as archive:
            for info, content in members:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.backend.close()
    subprocess.run(["chmod", "-R", "u+rwX", tmp_path], check=False, capture_output=True)


def member(name: str, kind: bytes = tarfile.REGTYPE, **over: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in over.items():
        setattr(info, field, value)
    return info


def furnish(home: Path) -> None:
    """Put one of each kind of entry into a home."""
    files = {"plain": 0o640, "run.sh": 0o755, ".cache/kept": 0o600, "closed/inside": 0o400, ".bashrc": 0o644}
    for name, mode in files.items():
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        path.chmod(mode)
        os.utime(path, ns=OLD)
    (home / "empty").mkdir(mode=0o750)
    (home / "closed").chmod(0o555)
    os.link(home / "plain", home / "same")
    for name, target in {"python": "/usr/bin/python3", "dead": "../../nowhere", "round": "round"}.items():
        (home / name).symlink_to(target)
    deep = home.joinpath(*["d" * 120] * 4)
    deep.mkdir(parents=True)
    (deep / ("n" * 255)).write_text("deep")
    for odd in (b"caf\xe9", b"two\nlines", "größe".encode(), b"-rf", b" "):
        Path(os.fsdecode(os.fsencode(home) + b"/" + odd)).write_bytes(odd)
    with (home / "sparse").open("wb") as file:
        file.seek(512 * 2**20)
        file.write(b"end")
    os.mkfifo(home / "pipe")
    (home / ".bootstrap.pending").touch()
    if IS_ROOT:
        subprocess.run(["chown", "-hR", f"{OWNER}:{OWNER}", home], check=True)


def described(home: Path) -> dict[bytes, tuple[object, ...]]:
    """Return what is known of every entry of a home: kind, mode, time, owner, links, size and content."""
    found: dict[bytes, tuple[object, ...]] = {}
    for folder, _, _ in os.walk(os.fsencode(home)):
        for entry in os.scandir(folder):
            seen = entry.stat(follow_symlinks=False)
            is_file, is_link = stat.S_ISREG(seen.st_mode), stat.S_ISLNK(seen.st_mode)
            content = os.readlink(entry.path) if is_link else b""
            if is_file and seen.st_size < 1000:
                content = Path(os.fsdecode(entry.path)).read_bytes()
            links = seen.st_nlink if is_file else 0
            about = (seen.st_mode, seen.st_mtime_ns, seen.st_uid, seen.st_gid, links, seen.st_size * is_file, content)
            found[os.path.relpath(entry.path, os.fsencode(home))] = about
    return found


def test_everything_in_a_home_comes_back(bench: Bench) -> None:
    furnish(bench.home)
    with socket.socket(socket.AF_UNIX) as left_out:
        folder = os.open(bench.home, os.O_PATH)
        left_out.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    bench.store()
    result = bench.store()  # a second one takes the place of the first
    file = (bench.data / FILE).stat()
    assert bench.names() == {FILE} and (file.st_uid, file.st_size) == (OWNER, result.size_bytes)
    assert file.st_size < 2**20, "holes are kept as holes"
    assert result.entries > 20 and bench.told[-1] is not None and bench.told[-1] <= result.size_bytes
    new = bench.unpack()
    expected = described(bench.home)
    assert {b"socket", b".bootstrap.pending"} <= expected.keys()
    for name in (b"socket", b".bootstrap.pending"):
        del expected[name]
    assert described(new) == expected
    assert (new / "sparse").stat().st_blocks * 512 < 2**20 and os.path.samefile(new / "plain", new / "same")


def test_a_mount_below_a_home_is_not_part_of_it(bench: Bench) -> None:
    need_root("only root mounts")
    (bench.home / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", bench.home / "data"], check=True)
    try:
        (bench.home / "data" / "theirs").write_text("x")
        bench.store()
    finally:
        subprocess.run(["umount", bench.home / "data"], check=True)
    with tarfile.open(bench.data / FILE) as archive:
        assert archive.getnames() == [".", "./data"]


@pytest.mark.parametrize("fault", ["large", "full", "gone", "unmarked", "elsewhere", "given up"])
def test_an_archive_that_cannot_be_written_leaves_the_old_one_and_nothing_else(bench: Bench, fault: str) -> None:
    bench.store()
    before = (bench.data / FILE).read_bytes()
    (bench.home / "big").write_bytes(os.urandom(3 * 2**20))
    words, given_up = None, False
    if fault == "large":
        words = "would be larger than 2 MiB"
    elif fault == "full":
        need_root("only root mounts")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=1m,uid={OWNER},mode=755", "none", bench.data], check=True)
        (bench.data / FILE).write_bytes(before)
        words = "Folder homes takes no more: its disk is full"
    elif fault == "gone":
        bench.place = bench.place.model_copy(update={"folder_id": uuid4()})
        words = "Folder homes is not on the storage host"
    elif fault == "unmarked":
        (bench.root / MARKER).unlink()
        words = "is not mounted, or was never prepared"
    elif fault == "elsewhere":
        bench.place = bench.place.model_copy(update={"host": "nfs"})
        words = "does not have the storage host nfs"
    else:
        given_up = True

    def give_up() -> None:
        raise JobUnwanted

    try:
        with pytest.raises(JobUnwanted if given_up else StartFailed, match=words):
            bench.store(2 * 2**20 if fault == "large" else None, give_up if given_up else lambda: None)
        if given_up:
            bench.backend.drop_part(bench.place)
        assert bench.names() == {FILE} and (bench.data / FILE).read_bytes() == before
    finally:
        if fault == "full":
            subprocess.run(["umount", bench.data], check=True)
    assert bench.hosts.children.stuck() == 0


def test_what_a_killed_agent_left_is_deleted_and_no_other_file(bench: Bench) -> None:
    for name in (f".{FILE}.17.part", ".home-main2.tar.18.part", "theirs"):
        (bench.data / name).touch()
    bench.backend.drop_part(bench.place)
    assert bench.names() == {".home-main2.tar.18.part", "theirs"}
    (bench.data / f".{FILE}.17.part").touch()
    bench.store()
    assert bench.names() == {".home-main2.tar.18.part", "theirs", FILE}


def test_a_host_that_falls_silent_fails_the_job_and_the_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_CODE", "import sys, time; sys.stdin.read(); time.sleep(600)")
    bench.hosts.children = Children(silence=0.2)
    with pytest.raises(StartFailed, match="does not answer") as stored:
        bench.store()
    with pytest.raises(StartFailed, match="does not answer") as started:
        bench.unpack()
    assert (stored.value.code, started.value.code, bench.hosts.children.stuck()) == (
        "storage-silent",
        "home-missing",
        0,
    )


def test_a_missing_or_broken_archive_is_told_apart_from_one_that_does_not_fit(bench: Bench) -> None:
    with pytest.raises(StartFailed, match=f"{FILE}, is not in folder homes") as missing:
        bench.unpack("first")
    (bench.data / FILE).write_bytes(b"no archive" * 1000)
    with pytest.raises(StartFailed, match="cannot be unpacked: This does not look like a tar archive") as broken:
        bench.unpack("second")
    (bench.home / "big").write_bytes(os.urandom(3 * 2**20))
    bench.store()
    with pytest.raises(StartFailed, match="holds 3 MiB; a home here may hold 1 MiB") as large:
        bench.unpack("third", limit=2**20)
    (bench.data / FILE).unlink()
    (bench.data / FILE).symlink_to("/etc/passwd")
    with pytest.raises(StartFailed) as link:
        bench.unpack("fourth")
    codes = [caught.value.code for caught in (missing, broken, large, link)]
    assert codes == ["home-missing", "home-broken", "home-too-large", "home-missing"]


def test_a_home_that_fills_its_disk_is_too_large(bench: Bench) -> None:
    need_root("only root mounts")
    (bench.home / "big").write_bytes(os.urandom(3 * 2**20))
    bench.store()
    small = bench.top / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=True)
    try:
        with pytest.raises(StartFailed, match="the disk of the new home is full") as caught:
            unpack_home(bench.hosts, bench.spec(), small, owner=OWNER)
    finally:
        subprocess.run(["umount", small], check=True)
    assert caught.value.code == "home-too-large"


HOSTILE = {
    "absolute": [(member("{outside}/new"), b"x")],
    "upwards": [(member("../new"), b"x"), (member("./a/../../new"), b"x")],
    "link, then through it": [(member("a", tarfile.SYMTYPE, linkname="{outside}"), b""), (member("a/new"), b"x")],
    "link up, then through it": [(member("a", tarfile.SYMTYPE, linkname="../outside"), b""), (member("a/new"), b"x")],
    "directory over a link": [
        (member("a", tarfile.SYMTYPE, linkname="{outside}"), b""),
        (member("a", tarfile.DIRTYPE, mode=0o777), b""),
        (member("a/new"), b"x"),
    ],
    "chain of links": [
        (member("a", tarfile.SYMTYPE, linkname="b"), b""),
        (member("b", tarfile.SYMTYPE, linkname="../outside"), b""),
        (member("a/new"), b"x"),
    ],
    "hard link": [(member("h", tarfile.LNKTYPE, linkname="{outside}/secret"), b""), (member("h"), b"written")],
    "hard link up": [(member("h", tarfile.LNKTYPE, linkname="../outside/secret"), b""), (member("h"), b"written")],
    "hard link to a link": [
        (member("a", tarfile.SYMTYPE, linkname="{outside}/secret"), b""),
        (member("h", tarfile.LNKTYPE, linkname="a"), b""),
        (member("h"), b"written"),
    ],
    "device": [(member("null", tarfile.CHRTYPE, devmajor=1, devminor=3), b"")],
    "of root": [(member("root", mode=0o6755, uid=0, gid=0, uname="root"), b"x")],
}


@pytest.mark.parametrize("trick", HOSTILE)
def test_nothing_in_an_archive_reaches_beyond_the_home(bench: Bench, trick: str) -> None:
    outside = bench.top / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    bench.top.chmod(0o711)
    if IS_ROOT:
        for path in (outside, outside / "secret", bench.top):
            os.chown(path, OWNER, OWNER)
    for info, _ in HOSTILE[trick]:
        info.name, info.linkname = (text.replace("{outside}", str(outside)) for text in (info.name, info.linkname))
    bench.write_archive(*HOSTILE[trick])
    before = set(os.listdir(bench.top)) | {"new"}
    try:
        bench.unpack()
    except StartFailed as error:
        assert error.code == "home-broken"
    assert (outside / "secret").read_text() == "untouched" and os.listdir(outside) == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1
    new = bench.top / "new"
    assert set(os.listdir(bench.top)) == before and new.is_dir()
    for path in new.rglob("*"):
        found = path.lstat()
        assert not stat.S_ISCHR(found.st_mode) and (found.st_uid, found.st_gid) == (OWNER, OWNER)


def test_the_home_wins_except_over_what_the_platform_renews(bench: Bench, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (bench.home / ".ssh").symlink_to(elsewhere)
    (bench.home / "data").symlink_to(elsewhere)
    (bench.home / ".config").write_text("a file in the place of a directory")
    (bench.home / ".bashrc").write_text("changed")
    (bench.home / ".profile").symlink_to(elsewhere / "profile")
    bench.store()
    files = [
        HomeFile(path=".ssh/authorized_keys", mode=0o600, content="new key"),
        *(HomeFile(path=path, content="first") for path in (".bashrc", ".profile", ".config/app", ".vimrc")),
    ]
    mounts = [
        MountSpec(host="local", folder_id=uuid4(), folder_name="d", target=f"/home/work/{path}", rights="edit")
        for path in ("data/inner",)
    ]
    spec = bench.spec(files=files, bootstrap="#!/bin/sh\n", mounts=mounts)
    new = bench.top / "new"
    new.mkdir()
    owner = OWNER if IS_ROOT else None
    fill_home(new, spec, owner=owner, unpack=lambda home: unpack_home(bench.hosts, spec, home, owner=owner))
    assert (new / ".ssh" / "authorized_keys").read_text() == "new key" and not (new / ".ssh").is_symlink()
    assert (new / "data" / "inner").is_dir() and not (new / "data").is_symlink()
    assert [(new / name).read_text() for name in (".bashrc", ".vimrc")] == ["changed", "first"]
    assert (new / ".profile").is_symlink() and (new / ".config").is_file() and not list(elsewhere.iterdir())
    assert not (new / ".bootstrap.sh").exists() and not (new / ".bootstrap.pending").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x\n", "a" * 129])
def test_an_archive_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="file"):
        StoredHome(host="local", folder_id=UUID(int=1), folder_name="homes", file=name)


@pytest.fixture(params=["sandbox", "plain"])
def native(bench: Bench, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[NativeBackend]:
    chosen = probe()
    if request.param == "plain":
        chosen = Isolation(None, "the test wants none", root=IS_ROOT)
    elif chosen.bwrap is None:
        pytest.skip(f"this machine allows no sandbox: {chosen.why_not}")
    monkeypatch.setattr(native_start, "probe", lambda: chosen)
    backend = NativeBackend(bench.top / "native", deployment="test", agent="n1", hosts=bench.hosts)
    yield backend
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    backend.close()


def run_to_end(backend: NativeBackend, spec: KernelSpec) -> list[str]:
    backend.start(spec)
    ended_of(backend, spec.kernel_id)
    return backend.read_log(spec.kernel_id, limit=10_000)[0].decode().splitlines()


def test_a_native_kernel_goes_on_with_the_home_of_the_one_before(bench: Bench, native: NativeBackend) -> None:
    command = (
        "umask 77; mkdir own; echo changed >.rc; ln -s /usr/bin/python3 own/python; sh -c 'sleep 999 & wait' & wait"
    )
    first = make_spec(image=IMAGE, session_type="batch", command=command, files=[HomeFile(path=".rc", content="first")])
    native.start(first)
    until(lambda: (native._homes(first.kernel_id) / "own" / "python").is_symlink())
    native.freeze(first.kernel_id)
    work = StoreWork(kernel_id=first.kernel_id, generation=1, home=bench.place, timeout=60.0)
    assert native.store_home(work, lambda _: None).entries >= 4
    native.stop(first.kernel_id, grace=0)
    native.remove(first.kernel_id)
    again = first.model_copy(
        update={
            "generation": 2,
            "home": bench.place,
            "command": "cat .rc; readlink own/python; touch own/new .rc; stat -c %a own",
        }
    )
    assert run_to_end(native, again) == ["changed", "/usr/bin/python3", "700"]
    native.remove(first.kernel_id)
    (bench.data / FILE).unlink()
    with pytest.raises(StartFailed) as caught:
        native.start(again)
    assert caught.value.code == "home-missing" and native.kernels() == []


def test_a_native_program_saves_its_state_at_sigterm_and_goes_on_from_it(bench: Bench, native: NativeBackend) -> None:
    saves = "trap 'echo saved >state; exit 75' TERM; touch began; while :; do sleep 0.1; done"
    command = f"[ -f state ] && exec cat state; {saves}"
    first = make_spec(image=IMAGE, session_type="batch", command=command)
    native.start(first)
    until((native._homes(first.kernel_id) / "began").exists)
    work = StoreWork(kernel_id=first.kernel_id, generation=1, home=bench.place, timeout=60.0, grace=30.0)
    progress = SimpleNamespace(tell=lambda _: None, heed=lambda _: None)
    StoreHomeHandler(native, lambda: None).run(work, progress)  # type: ignore[arg-type]
    assert native.ended(first.kernel_id) and native.kernels()[0].exit_code == 75
    native.remove(first.kernel_id)
    again = first.model_copy(update={"generation": 2, "home": bench.place})
    assert run_to_end(native, again) == ["saved"]


def test_a_control_group_of_version_2_is_frozen_as_a_whole() -> None:
    need_root("only root makes control groups")
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
    if mount is None or not os.access(mount, os.W_OK):
        pytest.skip("this machine has no control groups of version 2")
    group = mount / f"backendai-test-{uuid4().hex[:8]}"
    group.mkdir()
    try:
        with subprocess.Popen(
            ["sh", "-c", "while :; do echo tick; sleep 0.05; done"], stdout=subprocess.PIPE
        ) as ticking:
            assert ticking.stdout
            (group / "cgroup.procs").write_text(str(ticking.pid))
            ticking.stdout.readline()
            assert hold([group], still=True) and "frozen 1" in (group / "cgroup.events").read_text()
            assert hold([group], still=False)
            while select.select([ticking.stdout], [], [], 0)[0]:
                os.read(ticking.stdout.fileno(), 65536)
            assert ticking.stdout.read(5) == b"tick\n"
            assert hold([group], still=True)
            for pid in members([group]):
                os.kill(pid, signal.SIGKILL)  # takes effect although they are frozen
            ticking.wait(5)
        assert not hold([Path("/nowhere")], still=True), "no freezer is there"
    finally:
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
