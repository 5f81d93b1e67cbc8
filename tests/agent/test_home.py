"""What lies in a new home, and the script that runs there first."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from backendai.agent.backends.base import Backend
from backendai.agent.backends.docker.create import ACCESS
from backendai.agent.backends.docker.disk.scratch import Scratch, fill_for
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.shared import home as home_module
from backendai.agent.backends.shared.home import BOOTSTRAP_SECONDS, WAIT, after_bootstrap, fill_home
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.wire.messages import HomeFile, KernelSpec
from tests.agent.contract_tools import ask, ended_of
from tests.agent.images import ensure_tmux_image
from tests.agent.prerequisites import need_program
from tests.agent.specs import make_spec

SECRET = "machine example.org password hunter2"
FILES = [
    HomeFile(path=".netrc", mode=0o600, content=SECRET),
    HomeFile(path=".ssh/authorized_keys", mode=0o600, content="ssh-ed25519 AAAA laptop\n"),
    HomeFile(path=".config/app/run", mode=0o755, content="#!/bin/sh\necho app\n"),
    HomeFile(
        path=".tmux.conf", content="set -g status on\nset -g status-left 'my own line '\nset -g status-left-length 20\n"
    ),
]
SCRIPT = "#!/bin/sh\necho bootstrapped as $(id -u)\necho $(cat ~/.netrc | wc -w) words\necho done >ready\nexit 3\n"


def furnished(**over: Any) -> KernelSpec:
    return make_spec(**{"files": FILES, "bootstrap": SCRIPT} | over)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_get_their_modes_and_owner(tmp_path: Path) -> None:
    fill_home(tmp_path, furnished(), owner=os.geteuid())
    assert {str(path.relative_to(tmp_path)): mode_of(path) for path in tmp_path.rglob("*")} == {
        ".netrc": 0o600, ".ssh": 0o700, ".ssh/authorized_keys": 0o600, ".config": 0o755, ".config/app": 0o755,
        ".config/app/run": 0o755, ".tmux.conf": 0o644, ".bootstrap.sh": 0o700, ".bootstrap.pending": 0o600,
    }  # fmt: skip
    assert (tmp_path / ".netrc").read_text() == SECRET


def test_files_of_an_agent_that_cannot_give_them_away_are_open_to_the_kernel(tmp_path: Path) -> None:
    fill_home(tmp_path, furnished(), owner=None, open_to_all=True)
    assert (mode_of(tmp_path / ".netrc"), mode_of(tmp_path / ".ssh")) == (0o666, 0o777)


def test_it_follows_no_link_and_overwrites_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for number, name in enumerate((".config", ".netrc")):
        home = tmp_path / f"home{number}"
        home.mkdir()
        (home / name).symlink_to(outside / ("" if name == ".config" else "target"))
        with pytest.raises(OSError, match=r"directory|exists"):
            fill_home(home, furnished(), owner=None)
    assert not list(outside.iterdir())
    for path in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(ValueError, match="path"):
            HomeFile(path=path)


def test_a_home_is_whole_or_not_there_and_never_written_twice(tmp_path: Path) -> None:
    scratch, spec = Scratch(tmp_path, None), furnished()

    def fail(home: Path) -> None:
        (home / "half").touch()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        scratch.prepare(spec.kernel_id, 0, fail)
    assert not (tmp_path / str(spec.kernel_id) / "home").exists()
    fill = fill_for(spec, ACCESS, StorageHosts())
    home = scratch.prepare(spec.kernel_id, 0, fill) / "home"
    assert not (home / "half").exists()
    (home / ".netrc").write_text("changed by its user")
    scratch.prepare(spec.kernel_id, 0, fill)
    assert (home / ".netrc").read_text() == "changed by its user"


def run(spec: KernelSpec, home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        after_bootstrap(spec, str(home), list(command)), cwd=home, env={"PATH": os.environ["PATH"], "HOME": str(home)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip


def test_the_script_runs_once_before_the_command_and_its_failure_ends_nothing(tmp_path: Path) -> None:
    spec = furnished()
    fill_home(tmp_path, spec, owner=None)
    first = run(spec, tmp_path, "sh", "-c", 'cat ready; echo "$1"; exit 7', "x", "an argument")
    assert first.returncode == 7
    assert first.stdout.splitlines() == [
        f"bootstrapped as {os.geteuid()}", "4 words",
        "The bootstrap script failed with exit code 3; the session goes on.", "done", "an argument",
    ]  # fmt: skip
    assert run(spec, tmp_path, "echo", "again").stdout == "again\n"
    assert SECRET not in str(after_bootstrap(spec, "/home/work", ["true"]))
    assert after_bootstrap(make_spec(), "/home/work", ["true"]) == ["true"]


def test_a_script_that_takes_too_long_is_stopped_with_all_it_started(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(home_module, "BOOTSTRAP_SECONDS", 1)
    assert BOOTSTRAP_SECONDS == 300
    spec = furnished(bootstrap="#!/bin/sh\nsleep 1000 & echo $! >child\nwait\n")
    fill_home(tmp_path, spec, owner=None)
    said = run(spec, tmp_path, "echo", "on we go").stdout
    assert "stopped: it has run for 1 seconds" in said
    assert said.endswith("on we go\n")
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "cmdline")
    assert not child.exists() or not child.read_bytes(), "ended, perhaps not yet collected"


def test_a_script_without_a_first_line_is_one_for_sh(tmp_path: Path) -> None:
    spec = furnished(bootstrap="echo plain\n")
    fill_home(tmp_path, spec, owner=None)
    assert run(spec, tmp_path, "true").stdout == "plain\n"


def test_a_terminal_waits_for_the_script(tmp_path: Path) -> None:
    (tmp_path / ".bootstrap.pending").touch()
    with subprocess.Popen(
        ["sh", "-c", WAIT, "wait", str(tmp_path), "echo", "shell"], stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout
        assert "Your bootstrap script runs" in waiting.stdout.readline()
        (tmp_path / ".bootstrap.pending").unlink()
        assert waiting.stdout.read() == "shell\n"


async def see(backend: Backend, spec: KernelSpec, question: bytes, answer: bytes) -> bytes:
    """Return what a terminal of the kernel shows until the answer is on it."""
    terminal = await backend.open_terminal(spec.kernel_id, name="web", rows=24, cols=80)
    try:
        return await ask(terminal, question, answer)
    finally:
        await terminal.close()


def walk_the_whole_path(backend: Backend, spec: KernelSpec) -> None:
    """The files are there for the kernel's user, the script has run first, and tmux heeds its owner's settings."""
    backend.start(spec)
    screen = asyncio.run(see(backend, spec, b"cat ready ~/.ssh/authorized_keys\r", b"laptop"))
    assert b"done" in screen
    assert b"my own line" in screen
    log = backend.read_log(spec.kernel_id, limit=10_000)[0].decode()
    assert "4 words\nThe bootstrap script failed with exit code 3; the session goes on.\nSession demo" in log
    assert SECRET not in log


@pytest.mark.docker
def test_a_container_has_it_all_and_the_engine_knows_nothing_of_it(
    backend: Backend, engine: APIClient, deployment: str
) -> None:
    spec = furnished(deployment=deployment, image=ensure_tmux_image(engine))
    walk_the_whole_path(backend, spec)
    told = str(engine.inspect_container(f"krn-{spec.kernel_id}"))
    assert not any(word in told for word in ("hunter2", "bootstrapped", "AAAA laptop"))
    batch = furnished(deployment=deployment, session_type="batch", command="cat ready; exit 5")
    backend.start(batch)
    assert ended_of(backend, batch.kernel_id).exit_code == 5
    assert backend.read_log(batch.kernel_id, limit=10_000)[0].startswith(b"bootstrapped as 1000\n")


def test_a_native_process_has_it_all_and_its_folder_tells_nothing_of_it() -> None:
    need_program("tmux", "tmux")
    data = Path(tempfile.mkdtemp(prefix="process-home-", dir="/tmp"))
    data.chmod(0o755)
    backend = NativeBackend(data, deployment="test", agent="n1")
    try:
        spec = furnished(image=IMAGE)
        walk_the_whole_path(backend, spec)
        notes = "".join(path.read_text() for path in (data / str(spec.kernel_id)).glob("*.json"))
        assert not any(word in notes for word in ("hunter2", "bootstrapped", "AAAA laptop"))
    finally:
        for kernel in backend.kernels():
            backend.remove(kernel.kernel_id)
        backend.close()
        shutil.rmtree(data)
