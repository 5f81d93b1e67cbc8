"""The parts of the QEMU backend that need no machine: flattened images, command lines, ends, settings."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import lzma
import shutil
import socket
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.qemu import runner as qemu_runner
from backendai.agent.backends.qemu import trial as qemu_trial
from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.agent.backends.qemu.boot import BootFiles, newest_kernel, uncompressed
from backendai.agent.backends.qemu.channel import ask as qemu_ask
from backendai.agent.backends.qemu.command import KVM, TCG, GuestShape, command_of
from backendai.agent.backends.qemu.disk import launch_words
from backendai.agent.backends.qemu.layers import ArchiveLayers
from backendai.agent.backends.qemu.notes import describe
from backendai.agent.backends.qemu.runner import QemuRunner
from backendai.agent.backends.qemu.tools import QemuTools, ToolMissing
from backendai.agent.backends.qemu.trial import Acceleration
from backendai.agent.loop.machine import Machine
from backendai.agent.settings.config import read_settings
from backendai.agent.settings.qemu import QemuSettings, read_machines
from backendai.base.core.errors import UserError
from backendai.ops.doctor import qemu as doctor_qemu
from backendai.ops.doctor.qemu import qemu
from tests.agent.specs import make_spec
from tests.patience import patient
from tests.slow_machines import make_machine

Entry = tuple[str, bytes | str | None]  # a file's content, a link's target after "->" or "=>", None: a folder


def layer(*entries: Entry) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.uid, entry.mode = 1000, 0o750
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type = tarfile.SYMTYPE if content.startswith("->") else tarfile.LNKTYPE
                entry.linkname = content[2:]
            data = content if isinstance(content, bytes) else b""
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def flat(tmp_path: Path, *layers: bytes) -> dict[str, Any]:
    """Return what a container of these layers would see."""
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w") as tar:
        names = [f"{number}/layer.tar" for number in range(len(layers))]
        manifest = [{"Config": "config.json", "Layers": names}]
        files = {"manifest.json": json.dumps(manifest).encode(), "config.json": b'{"config": {}}'}
        for name, data in [*files.items(), *zip(names, layers, strict=True)]:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    output = io.BytesIO()
    with ArchiveLayers(archive) as opened:
        opened.write(output)
    output.seek(0)
    seen: dict[str, Any] = {}
    with tarfile.open(fileobj=output) as tar:
        for entry in tar:
            if entry.issym() or entry.isdir():
                seen[entry.name] = entry.linkname or None
            else:
                content = tar.extractfile(entry)
                seen[entry.name] = content.read() if content else b""
            assert (entry.uid, entry.mode) == (1000, 0o750)
    return seen


def test_later_layers_add_replace_and_hide(tmp_path: Path) -> None:
    seen = flat(
        tmp_path,
        layer(("etc", None), ("etc/a", b"1"), ("etc/b", b"2"), ("var", None), ("var/x", b"3"), ("var/y", b"4")),
        layer(("etc/a", b"new"), ("etc/.wh.b", b""), ("var/.wh..wh..opq", b""), ("var/z", b"5")),
    )
    assert seen == {"etc": None, "etc/a": b"new", "var": None, "var/z": b"5"}


def test_a_hidden_folder_is_gone_with_all_below_and_may_come_back(tmp_path: Path) -> None:
    seen = flat(
        tmp_path,
        layer(("opt", None), ("opt/one", None), ("opt/one/deep", b"1"), ("opt/oneself", b"2")),
        layer(("opt/.wh.one", b"")),
        layer(("opt/one", None), ("opt/one/other", b"3")),
    )
    assert seen == {"opt": None, "opt/one": None, "opt/one/other": b"3", "opt/oneself": b"2"}


def test_a_file_in_the_place_of_a_folder_hides_what_was_in_it(tmp_path: Path) -> None:
    seen = flat(tmp_path, layer(("lib", None), ("lib/x", b"1")), layer(("lib", "->usr/lib")))
    assert seen == {"lib": "usr/lib"}


def test_a_hard_link_keeps_the_file_when_its_name_is_replaced_later(tmp_path: Path) -> None:
    seen = flat(tmp_path, layer(("a", b"old"), ("b", "=>a")), layer(("a", b"new")))
    assert seen == {"a": b"new", "b": b"old"}


def test_names_that_lead_out_of_the_image_stay_in_it(tmp_path: Path) -> None:
    assert flat(tmp_path, layer(("../../etc/x", b"1"), ("./usr//y", b"2"))) == {"etc/x": b"1", "usr/y": b"2"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with programs that do nothing, and a kernel."""
    for name in ("usr/bin/qemu-system-x86_64", "usr/bin/sqfstar", "sbin/mke2fs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    for version in ("6.1.9-1-amd64", "6.1.10-1-amd64", "6.9.0-9-amd64"):
        (tmp_path / "boot").mkdir(exist_ok=True)
        (tmp_path / "boot" / f"vmlinuz-{version}").touch()
        if version < "6.9":
            (tmp_path / "lib/modules" / version).mkdir(parents=True)
    return tmp_path


def test_the_command_opens_no_way_into_the_machine(root: Path) -> None:
    words = command_of(GuestShape(256 * 2**20, 2, TCG), QemuTools(root))
    line = " ".join(words)
    assert words[0] == str(root / "usr/bin/qemu-system-x86_64")
    for wanted in ("-nic none", "-monitor none", "-sandbox on,", "spawn=deny", "-m 256M", "-smp 2", "-accel tcg"):
        assert wanted in line
    for unwanted in ("hostfwd", "user,", "-qmp", "-vnc", "server=on", "path="):
        assert unwanted not in line
    assert "/dev/fdset/3" not in line
    with_network = " ".join(command_of(GuestShape(2**28, 1, TCG, has_network=True), QemuTools(root)))
    assert "-netdev user,id=network," in with_network and "ipv6=off" in with_network and "-nic" not in with_network
    assert "hostfwd" not in with_network and "guestfwd" not in with_network
    with_others = " ".join(command_of(GuestShape(2**28, 1, TCG, has_network=True, rank=2), QemuTools(root)))
    assert with_others.index("netdev=network") < with_others.index("netdev=session"), "as the guest numbers them"
    assert "local.type=fd,local.str={session}" in with_others and "mac=02:62:61:69:00:02" in with_others
    assert "/dev/fdset/3" in " ".join(command_of(GuestShape(2**28, 1, TCG, has_kit=True), QemuTools(root)))
    assert "-cpu host" in " ".join(command_of(GuestShape(2**28, 1, KVM), QemuTools(root)))


def test_a_guest_on_a_busy_host_does_not_panic_over_late_ticks_of_its_timer(root: Path) -> None:
    words = command_of(GuestShape(2**28, 1, TCG), QemuTools(root))
    assert "no_timer_check" in words[words.index("-append") + 1].split()


def test_folders_need_memory_that_their_server_shares(root: Path) -> None:
    line = " ".join(command_of(GuestShape(2**28, 1, TCG, ("folder0",)), QemuTools(root)))
    assert "memory-backend-memfd,id=shared,size=256M,share=on" in line
    assert "socket,id=folder0,fd={folder0}" in line and "tag=folder0" in line


def test_a_program_that_is_missing_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="no-such-program is not installed"):
        QemuTools(tmp_path).need("no-such-program")


@pytest.mark.parametrize(
    ("program", "acceleration", "why_not"),
    [
        ("exit 0", KVM, ""),
        ("echo 'qemu: no such MSR' >&2; exit 134", TCG, "QEMU ended: qemu: no such MSR"),
        ("exec sleep 60", TCG, "a guest did not start within 1 s"),
    ],
)
def test_a_trial_with_a_deadline_decides_how_machines_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, program: str, acceleration: str, why_not: str
) -> None:
    qemu_program = root / "usr/bin/qemu-system-x86_64"
    qemu_program.write_text(f"#!/bin/sh\n{program}\n")
    (root / "kvm").touch()
    monkeypatch.setattr(qemu_trial, "_DEVICE", str(root / "kvm"))
    monkeypatch.setattr(qemu_trial, "TRIAL_SECONDS", 1.0)
    make_machine(monkeypatch)
    files = BootFiles(root / "vmlinux", root / "initrd", "6.1")
    found = Acceleration("auto", QemuTools(root), lambda: files)
    assert (found.find().acceleration, found.find().why_not) == (acceleration, why_not)
    asked = Acceleration("kvm", QemuTools(root), lambda: files)
    if why_not:
        with pytest.raises(BackendError, match="No guest starts"):
            asked.find()
    else:
        assert asked.find().acceleration == KVM


@pytest.mark.parametrize(("program", "slowness", "seconds"), [("exit 0", 1, 60), ("exit 1", 4, 240)])
def test_emulated_machines_have_more_time_for_starts_and_apps(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, slowness: int, seconds: int
) -> None:
    (root / "usr/bin/qemu-system-x86_64").write_text(f"#!/bin/sh\n{program}\n")
    (root / "kvm").touch()
    monkeypatch.setattr(qemu_trial, "_DEVICE", str(root / "kvm"))
    backend = QemuBackend(tmp_path / "agent", QemuSettings(root=root), deployment="test", agent="n1")
    monkeypatch.setattr(backend.acceleration, "_files", lambda: BootFiles(root / "vmlinux", root / "initrd", "6.1"))
    make_machine(monkeypatch)
    assert backend.services and backend.services.longest_start() == 240, "not tested yet, and nobody waits for that"
    backend.acceleration.find()
    assert backend.services.longest_start() == seconds
    machine = Machine(backend, offered=lambda slots: slots, gateway_url="")
    assert machine.describe([], engine_fault="", draining=False, wait=0.0).slowness == slowness
    backend.close()


def test_a_machine_without_the_device_emulates_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu_trial, "_DEVICE", str(root / "none"))
    found = Acceleration("auto", QemuTools(root), lambda: pytest.fail("no trial without the device")).find()
    assert (found.acceleration, "missing" in found.why_not) == (TCG, True)
    notes = describe(found, "", "", overhead=2**27, has_limits=True, is_root=True, storage="", no_network="", hidden="")
    assert {note.code for note in notes} == {"qemu-overhead", "qemu-emulated"}
    assert "128 MiB" in next(note.message for note in notes if note.code == "qemu-overhead")


def test_the_newest_kernel_that_has_modules_is_taken(root: Path, tmp_path: Path) -> None:
    assert newest_kernel(root).name == "vmlinuz-6.1.10-1-amd64"
    with pytest.raises(BackendError, match="linux-image-cloud-amd64"):
        newest_kernel(tmp_path / "empty")


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: lzma.compress(data) + b"\x00\x00\x10\x00"])
def test_a_kernel_is_unpacked_from_its_image(pack: Any) -> None:
    payload = pack(b"\x7fELF the kernel")
    image = bytearray(0x400)
    image[0x1F1] = 1  # one sector of setup after the first
    struct.pack_into("<II", image, 0x248, 0, len(payload))
    assert uncompressed(bytes(image) + payload) == b"\x7fELF the kernel"


def test_an_agent_that_lacks_something_says_what_and_how_to_get_it(root: Path, tmp_path: Path) -> None:
    def opened(place: Path) -> QemuBackend:
        return QemuBackend(tmp_path / "agent", QemuSettings(root=place), deployment="test", agent="n1")

    assert opened(root).fault() == ""
    shutil.rmtree(root / "boot")
    assert "no Linux kernel" in opened(root).fault()
    notes = {note.code: note for note in opened(root).notes()}
    assert notes["qemu-starts-nothing"].fix.endswith("linux-image-cloud-amd64")


def test_a_kernel_in_an_unknown_packing_is_refused() -> None:
    image = bytearray(0x400)
    image[0x1F1] = 1
    struct.pack_into("<II", image, 0x248, 0, 4)
    with pytest.raises(OSError, match="6f646400"):
        uncompressed(bytes(image) + b"odd\0")


def test_the_guest_is_told_user_variables_and_command() -> None:
    spec = make_spec(session_type="batch", command="echo $HOME", environ={"A": "1"}, hostname="main1", pids=9)
    words = launch_words(
        spec, {"PATH": "/opt/bin", "A": "0"}, GuestShape(2**28, 1, TCG, has_network=True, rank=1), uid=1000
    )
    told = [word for word in words if word.startswith(("interface=", "gateway="))]
    assert told == [
        "interface=198.51.100.15:255.255.255.224", "gateway=198.51.100.2", "interface=198.51.100.226:255.255.255.224",
    ]  # fmt: skip
    assert {"uid=1000", "gid=1000", "pids=9", "host=main1", "folder=/home/work", "shm=16777216"} <= set(words)
    assert [word for word in words if word.startswith("environ=A=")] == ["environ=A=1"]
    assert "environ=PATH=/opt/bin" in words
    assert [word for word in words if word.startswith("argument=")] == [
        "argument=/bin/sh", "argument=-c", "argument=echo $HOME",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("end", "order", "beat", "said"),
    [
        ({"exited": 3, "oom": 0}, None, {}, (3, "exited", "")),
        ({"exited": 137, "oom": 0}, None, {}, (137, "exited", "")),
        (
            {"exited": 127, "oom": 0},
            None,
            {},
            (127, "shell-missing", "The image has no /bin/sh: its program never started."),
        ),
        ({}, None, {}, (None, "exited", "The virtual machine ended.")),
        ({"hung": "It hung."}, None, {}, (None, "exited", "It hung.")),
        ({"failed": "no disk"}, None, {}, (None, "exited", "The virtual machine does not start: no disk.")),
        ({"exited": 143, "oom": 0}, {"reason": "", "message": ""}, {}, (143, "", "")),
        (
            {"exited": 1, "oom": 0},
            None,
            {"disk": 2**24, "free": 100},
            (1, "exited", "The main process ended with exit code 1. Its disk is full."),
        ),
    ],
)
def test_an_end_is_told_with_its_reason(
    end: Mapping[str, Any], order: Any, beat: Any, said: tuple[Any, ...], tmp_path: Path
) -> None:
    launch = {"log_bytes": 8192, "cgroups": [], "memory": 96 * 2**20, "disk_words": "Its disk is full."}
    launch |= {"virtiofsd": "", "environ_outside": {}, "session": None}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    runner = QemuRunner(tmp_path, -1)
    runner.end, runner.order, runner.beat = dict(end), order, beat
    runner.log.append(b"/bin/sh cannot be started: No such file or directory\n")
    ending = runner.ending()
    assert (ending["exit_code"], ending["reason"], ending["message"]) == said


def test_a_start_that_cannot_be_recorded_ends_at_once_with_its_reason(tmp_path: Path) -> None:
    launch = {"log_bytes": 8192, "virtiofsd": "", "environ_outside": {}, "session": None}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    (tmp_path / "runner.draft").mkdir()  # as little can be written there as on a full disk
    runner = QemuRunner(tmp_path, -1)
    runner._hear("started")
    assert runner.over.is_set()
    assert "Is a directory" in runner.ending()["failed"]


@pytest.mark.asyncio
async def test_a_guest_that_says_nothing_for_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "launch.json").write_text(
        json.dumps({"log_bytes": 8192, "virtiofsd": "", "environ_outside": {}, "session": None})
    )
    monkeypatch.setattr(qemu_runner, "_LOOK", 0.01)
    runner = QemuRunner(tmp_path, -1)
    watching = asyncio.create_task(runner._watch())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runner.over.wait(), 0.05)
    runner.heard_at -= qemu_runner._LONGEST_SILENCE
    await asyncio.wait_for(runner.over.wait(), patient(10))
    watching.cancel()
    assert "said nothing for 600 seconds" in runner.ending()["message"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BACKENDAI_QEMU_ROOT", "relative"),
        ("BACKENDAI_QEMU_CACHE", "relative"),
        ("BACKENDAI_QEMU_ACCELERATION", "fast"),
        ("BACKENDAI_QEMU_OVERHEAD", "much"),
        ("BACKENDAI_QEMU_OVERHEAD", "1t"),
        ("BACKENDAI_QEMU_NETWORK", "bridge"),
        ("BACKENDAI_QEMU_GUESTS", "10.0.0.0/8"),
        ("BACKENDAI_QEMU_GUESTS", "10.0.0.1/24"),
        ("BACKENDAI_QEMU_GUESTS", "0.0.0.0/24"),
        ("BACKENDAI_QEMU_GUESTS", "127.3.0.0/24"),
        ("BACKENDAI_QEMU_GUESTS", "169.254.7.0/24"),
        ("BACKENDAI_QEMU_GUESTS", "239.1.2.0/24"),
        ("BACKENDAI_QEMU_GUESTS", "240.1.2.0/24"),
        ("BACKENDAI_QEMU_GUESTS", "255.255.255.0/24"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(UserError) as refused:
        read_machines({variable: value})
    assert variable in str(refused.value.field)


def test_settings_are_read() -> None:
    told = {"BACKENDAI_QEMU_ROOT": "/opt/bed", "BACKENDAI_QEMU_ACCELERATION": "kvm", "BACKENDAI_QEMU_OVERHEAD": "256m"}
    told["BACKENDAI_QEMU_GUESTS"] = "10.9.8.0/24"
    found = read_settings({**told, "BACKENDAI_AGENT_BACKEND": "qemu"}, {"name": "a"})
    assert (found.backend, found.machines.root, found.machines.cache) == ("qemu", Path("/opt/bed"), None)
    assert (found.machines.acceleration, found.machines.overhead) == ("kvm", 256 * 2**20)
    assert str(found.machines.guests) == "10.9.8.0/24"


def test_the_doctor_speaks_of_qemu_only_where_an_agent_uses_it(root: Path) -> None:
    assert qemu({}) == []
    environ = {"BACKENDAI_AGENT_BACKEND": "qemu", "BACKENDAI_QEMU_ROOT": str(root)}
    found = {check.name: check for check in qemu(environ)}
    assert found["qemu kernel"].message == "vmlinuz-6.1.10-1-amd64"


@pytest.mark.parametrize(("network", "warned"), [("", True), ("auto", True), ("off", False)])
def test_the_doctor_speaks_of_addresses_of_guests_only_where_they_have_a_network(
    root: Path, monkeypatch: pytest.MonkeyPatch, network: str, warned: bool
) -> None:
    monkeypatch.setattr(doctor_qemu, "devices_into", lambda _: ["lab1"])
    environ = {"BACKENDAI_AGENT_BACKEND": "qemu", "BACKENDAI_QEMU_ROOT": str(root)}
    found = qemu({**environ, "BACKENDAI_QEMU_NETWORK": network})
    assert any("lab1" in check.message for check in found) == warned


def test_a_program_in_the_guest_that_writes_without_end_is_read_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu_ask, "_LARGEST_ANSWER", 1000)
    ours, guest = socket.socketpair()
    with ours, guest:
        guest.sendall(b"x" * 2000)  # and the stream stays open
        assert qemu_ask._all_of(ours) == b"x" * 1000
