"""The engine's answers, turned into reasons, shares and notes that people can read. No engine is needed."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backendai.agent.backends.base import BackendError, Fetched, ImageNotFound
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.images import _fetched, pull_refusal
from backendai.agent.backends.docker.notes import engine_notes, inotify_notes, missing_runtime, runtime_notes
from backendai.agent.backends.docker.seccomp import own_profile
from backendai.agent.backends.docker.services import DockerServices, _beginning
from backendai.agent.backends.docker.state import _explains, cause_of, how_it_ended
from backendai.agent.loop.machine import capabilities_of
from backendai.agent.settings.kernel_runtime import BEYOND_BORDER, Runtime, read_runtime
from backendai.base.core.errors import UserError
from backendai.base.wire.capabilities import Capability
from tests.patience import patient

NOBODY = Engine("unix:///nowhere", "test", "n1")
GOOD_ENGINE = {
    "LiveRestoreEnabled": True,
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "BridgeNfIptables": True,
    "CgroupDriver": "systemd",
}


def container(
    code: int, *, oom: bool = False, running: bool = False, status: str = "exited", limit: int = 512 * 2**20
) -> dict[str, Any]:
    state = {"Running": running, "Status": status, "ExitCode": code, "OOMKilled": oom}
    return {"State": state, "HostConfig": {"Memory": limit}}


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        ("pull access denied for x, repository does not exist", ImageNotFound, "image-not-found"),
        ("manifest for python:9 not found: manifest unknown: manifest unknown", ImageNotFound, "image-not-found"),
        ('Get "https://r.test/v2/": dial tcp: lookup r.test: no such host', BackendError, "registry-unreachable"),
        ("net/http: TLS handshake timeout", BackendError, "registry-unreachable"),
        ("no space left on device", BackendError, "pull-failed"),
        ("unauthorized: authentication required", BackendError, "registry-denied"),
        ("no basic auth credentials", BackendError, "registry-denied"),
    ],
)
def test_it_tells_an_unknown_image_from_a_silent_registry(words: str, error: type, code: str) -> None:
    refused = pull_refusal("python:9", words)
    assert (type(refused), refused.code) == (error, code)
    assert "python:9" in refused.message and words in refused.message


def test_it_adds_up_the_progress_of_all_layers() -> None:
    layers: dict[str, tuple[int, int]] = {}
    started_at = {"status": "Pulling fs layer", "progressDetail": {}, "id": "a"}
    assert _fetched(layers, started_at) == Fetched(None, "Pulling fs layer")
    half = {"status": "Downloading", "progressDetail": {"current": 5 * 2**20, "total": 10 * 2**20}, "id": "a"}
    assert _fetched(layers, half) == Fetched(0.5, "5 of 10 MiB", 5 * 2**20, 10 * 2**20)
    other = {"status": "Downloading", "progressDetail": {"current": 0, "total": 10 * 2**20}, "id": "b"}
    assert _fetched(layers, other) == Fetched(0.25, "5 of 20 MiB", 5 * 2**20, 20 * 2**20)
    assert _fetched(layers, {"status": "Download complete", "id": "a"}).share == 0.5


@pytest.mark.parametrize(
    ("seen", "ordered", "code", "reason", "word"),
    [
        (container(0), False, 0, "exited", "exit code 0"),
        (container(137, oom=True), False, 137, "out-of-memory", "512 MiB"),
        (container(0, oom=True), False, 0, "exited", "limit (512 MiB), and a process was killed"),
        (container(5, oom=True), False, 5, "out-of-memory", "limit (512 MiB), and a process was killed"),
        (container(5, oom=True), True, 5, "", "stopped"),
    ],
)
def test_it_says_how_a_kernel_ended(seen: dict[str, Any], ordered: bool, code: int, reason: str, word: str) -> None:
    ended = how_it_ended(seen, ordered=ordered, cause=cause_of(NOBODY, seen))  # nobody is asked: the flag says it
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (code, reason)
    assert word in ended.message


@pytest.mark.parametrize(
    ("code", "cause", "reason", "word"),
    [
        (137, "", "exited", "SIGKILL"),
        (255, "", "exited", "exit code 255"),
        (137, "oom", "out-of-memory", "512 MiB"),
        (137, "kill", "container-killed", "outside the platform"),
        (1, "stop", "container-killed", "outside the platform"),
        (127, "no-shell", "shell-missing", "has no /bin/sh"),
    ],
)
def test_an_event_of_the_engine_explains_an_end(code: int, cause: str, reason: str, word: str) -> None:
    ended = how_it_ended(container(code), ordered=False, cause=cause)
    assert ended is not None and (ended.exit_code, ended.reason) == (code, reason)
    assert word in ended.message


@pytest.mark.parametrize(("signal", "code", "cause"), [("9", 137, "kill"), ("1", 137, ""), ("15", 143, "kill")])
def test_a_signal_that_the_program_survived_explains_nothing(signal: str, code: int, cause: str) -> None:
    assert _explains({"Action": "kill", "Actor": {"Attributes": {"signal": signal}}}, code) == cause


@pytest.mark.parametrize("seen", [container(0, running=True, status="running"), container(0, status="created")])
def test_it_does_not_say_that_a_kernel_has_ended_which_has_not(seen: dict[str, Any]) -> None:
    assert how_it_ended(seen, ordered=True, cause="") is None


def test_it_has_nothing_to_note_about_a_good_engine() -> None:
    assert list(engine_notes(GOOD_ENGINE)) == []


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("LiveRestoreEnabled", False, "live-restore-off"),
        ("MemoryLimit", False, "memory-unlimited"),
        ("SecurityOptions", [], "seccomp-off"),
        ("BridgeNfIptables", False, "bridge-traffic-unfiltered"),
    ],
)
def test_it_notes_what_makes_kernels_weaker_and_how_to_mend_it(field: str, value: Any, code: str) -> None:
    (note,) = engine_notes(GOOD_ENGINE | {field: value})
    assert note.code == code
    assert note.fix


@pytest.mark.parametrize(
    ("version", "profile", "codes"),
    [
        ("20.10.24+dfsg1", "default", ["seccomp-old"]),
        ("24.0.9", "builtin", ["seccomp-old"]),
        ("25.0.0", "builtin", []),
        ("24.0.9", "/etc/docker/own.json", []),
        ("dev", "default", []),
    ],
)
def test_it_says_when_the_engines_own_filter_of_system_calls_is_old(
    version: str, profile: str, codes: list[str]
) -> None:
    info = {**GOOD_ENGINE, "ServerVersion": version, "SecurityOptions": [f"name=seccomp,profile={profile}"]}
    assert [note.code for note in engine_notes(info | {"Architecture": "s390x"})] == codes
    for machine in ("x86_64", "aarch64"):
        assert list(engine_notes(info | {"Architecture": machine})) == []
        assert bool(own_profile(info | {"Architecture": machine})) is bool(codes)


@pytest.mark.parametrize(("count", "codes"), [("128\n", ["inotify-low"]), ("1024\n", [])])
def test_it_says_when_one_kernel_can_take_all_inotify_instances(count: str, codes: list[str], tmp_path: Path) -> None:
    setting = tmp_path / "max_user_instances"
    setting.write_text(count)
    assert [note.code for note in inotify_notes(setting)] == codes
    assert list(inotify_notes(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("", []),
        ("runc", []),
        ("io.containerd.runc.v2", []),
        ("kata", ["runtime-border"]),
        ("runsc", ["runtime-missing", "runtime-border"]),
        ("io.containerd.kata.v2", ["runtime-border"]),  # engines do not list shims
    ],
)
def test_it_says_what_a_runtime_with_a_border_takes_away(name: str, codes: list[str]) -> None:
    runtime = Runtime(name, 256 * 2**20)
    found = list(runtime_notes({"Runtimes": {"runc": {}, "kata": {}}}, runtime))
    assert [note.code for note in found] == codes
    assert all("256 MiB" in note.message for note in found if note.code == "runtime-border")
    assert runtime.lacks == (BEYOND_BORDER if "runtime-border" in codes else frozenset())


def test_an_agent_offers_nothing_that_its_runtime_keeps_out(tmp_path: Path) -> None:
    def told(runtime: Runtime) -> set[str]:
        backend = DockerBackend(tmp_path, deployment="t", agent="n1", docker_url="unix:///nowhere", runtime=runtime)
        assert (backend.guests is None) == runtime.has_border
        return capabilities_of(backend)

    usual, beyond = told(Runtime()), told(Runtime("runsc"))
    assert usual - beyond == {*BEYOND_BORDER, "job.image.commit", "job.image.delete", "job.home.store"}
    assert beyond <= usual and {Capability.TERMINAL, Capability.APPS, Capability.FOLDERS} <= beyond


def test_an_engine_without_the_runtime_is_a_fault_once_it_has_described_itself() -> None:
    runsc = Runtime("runsc")
    assert missing_runtime({}, runsc) == ""
    assert "no runtime runsc" in missing_runtime({"Runtimes": {"runc": {}}}, runsc)
    assert missing_runtime({"Runtimes": {"runsc": {}}}, runsc) == ""


def test_a_runtime_is_read_from_the_environment() -> None:
    told = {"BACKENDAI_AGENT_RUNTIME": "kata", "BACKENDAI_AGENT_RUNTIME_MEMORY": "256m"}
    assert (read_runtime(told), read_runtime({})) == (Runtime("kata", 256 * 2**20), Runtime())
    for wrong in ("a b", "../runc", "x" * 129):
        with pytest.raises(UserError):
            read_runtime({"BACKENDAI_AGENT_RUNTIME": wrong})


def test_it_reads_no_more_of_a_programs_endless_answer_than_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_up = threading.Event()

    def write_without_end(server: socket.socket) -> None:
        line = server.accept()[0]
        with line, contextlib.suppress(OSError):
            line.recv(65536)
            line.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
            while True:
                line.sendall(struct.pack(">BxxxL", 1, 1000) + b"x" * 1000)
        hung_up.set()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "engine.sock"))
        server.listen()
        threading.Thread(target=write_without_end, args=(server,), daemon=True).start()
        engine = Engine(f"unix://{tmp_path}/engine.sock", "test", "n1")
        engine._version = "1.41"
        services = DockerServices(engine, None)  # type: ignore[arg-type]
        monkeypatch.setattr(engine, "running", lambda _: {})
        monkeypatch.setattr(engine, "make_exec", lambda *_: "made")
        assert services.log(uuid4(), "notes", limit=2500) == b"x" * 2500
        assert hung_up.wait(patient(10))


def test_it_takes_the_beginning_of_an_archive_only() -> None:
    taken = iter([b"ab"] * 100)
    assert _beginning(taken, 5) == b"ababa"
    assert len(list(taken)) == 97
