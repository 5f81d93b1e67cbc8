"""OpenSSH's clients into containers: one of a busybox alone, which has its files and Python from the kit."""

from __future__ import annotations

import filecmp
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.domain.compute.models import ComputeSession
from tests.agent.conftest import backend, deployment, engine, new_spec  # noqa: F401
from tests.agent.contract_tools import NewSpec
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.sshgate.sockets import free_port, page_of, page_through_socks
from tests.sshgate.stage import Stage, stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.docker]


@pytest.fixture
def here(backend: DockerBackend) -> Iterator[Stage]:  # noqa: F811
    with stage(backend) as found:
        yield found


@pytest.fixture
def session(cast: Cast, here: Stage, new_spec: NewSpec) -> ComputeSession:  # noqa: F811
    session = make_running_session(cast.alice, name="train")
    spec = new_spec()
    here.run_kernels(session, image=spec.image, deployment=spec.deployment, agent=spec.agent)
    return session


def test_shells_commands_and_files_of_an_image_without_python(here: Stage, key: Path, session: ComputeSession) -> None:
    shell = here.run(key, "train", "-tt", given=b"tty; stty size; id -u; hostname; exit 3\n")
    assert shell.returncode == 3 and b"/dev/pts/" in shell.stdout and b"\n1000\r" in shell.stdout, shell
    assert b"main1" in shell.stdout
    told = here.run(key, "train", "cat; echo err >&2; exit 7", given=b"x" * 300_000)
    assert (told.returncode, told.stdout, told.stderr) == (7, b"x" * 300_000, b"err\n")
    assert here.run(key, "train", "command -v python3").returncode != 0
    local = here.folder / "local"
    local.write_bytes(os.urandom(3_000_000))
    for number, old in enumerate(([], ["-O"])):
        there, back = f"train@127.0.0.1:sent{number}", here.folder / f"back{number}"
        for source, target in ((str(local), there), (there, str(back))):
            copied = here.copy("scp", key, *old, source, target)
            assert copied.returncode == 0, copied.stderr
        assert back.read_bytes() == local.read_bytes()
    batch = here.folder / "batch"
    batch.write_text(f"mkdir d\nput {local} d/x\nls -l d\nrename d/x d/y\nget d/y {here.folder}/got\n")
    done = here.copy("sftp", key, "-b", str(batch), "train@127.0.0.1")
    assert done.returncode == 0 and (here.folder / "got").read_bytes() == local.read_bytes(), done.stderr
    assert here.run(key, "train", "cmp sent0 d/y && stat -c %u:%a d/y").stdout == b"1000:644\n"
    missing = here.run(key, "train", "git-receive-pack 'x'")
    assert missing.returncode == 255 and b"There is no git in this session: install git in its image." in missing.stderr
    _compare_rsync(here, key)
    _come_back_to_a_shell(here, key)


def _come_back_to_a_shell(here: Stage, key: Path) -> None:
    """Start a shell in the kit's tmux as the greeting says, lose the connection, and find it again."""
    if shutil.which("tmux") is None:
        return
    told = here.run(key, "train", "-tt", given=b"exit\n").stdout.decode()
    tmux = next(word for word in told.split() if word.endswith("/tmux"))
    shell = subprocess.Popen(
        here.ssh(key, "train", "-tt", f"{tmux} new -A -s main"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert shell.stdin is not None
    with shell.stdin:
        shell.stdin.write(b"mark=here\necho $mark >started\n")
        shell.stdin.flush()
        _wait_for(here, key, "started")
        shell.kill()
        shell.wait(patient(10))
    here.run(key, "train", f"{tmux} send-keys -t main 'echo $mark >again' Enter")
    _wait_for(here, key, "again")


def _wait_for(here: Stage, key: Path, name: str) -> None:
    until = time.monotonic() + 20
    while here.run(key, "train", f"cat {name}").stdout != b"here\n":
        assert time.monotonic() < until, name


def _compare_rsync(here: Stage, key: Path) -> None:
    """Copy a folder both ways where this machine has rsync; else the kernel says that it is missing."""
    if shutil.which("rsync") is None:
        told = here.run(key, "train", "rsync --server -e.LsfxCIvu . x")
        assert told.returncode == 255 and b"There is no rsync in this session: install rsync" in told.stderr
        return
    tree, back = here.folder / "tree", here.folder / "tree-back"
    (tree / "deep").mkdir(parents=True)
    for number in range(50):
        (tree / "deep" / f"file {number}").write_bytes(os.urandom(1000 + number))
    (tree / "link").symlink_to("deep/file 1")
    remote = " ".join(["ssh", *here.options(key), "-p", str(here.port)])
    for source, target in ((f"{tree}/", "train@127.0.0.1:tree/"), ("train@127.0.0.1:tree/", f"{back}/")):
        copied = subprocess.run(
            ["rsync", "-a", "-e", remote, source, target], capture_output=True, timeout=60, check=False
        )
        assert copied.returncode == 0, copied.stderr
    assert not filecmp.dircmp(tree / "deep", back / "deep").diff_files and (back / "link").is_symlink()
    assert len(list((back / "deep").iterdir())) == 50


def test_ports_and_sockets_of_a_container_by_every_kind_of_forwarding(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    control = {"ControlMaster": "auto", "ControlPath": str(here.folder / "c"), "ControlPersist": "30"}
    assert here.run(key, "train", "true", **control).returncode == 0
    serve = "echo hello >index.html; httpd -p 127.0.0.1:8080 -h ."
    assert here.run(key, "train", serve, **control).returncode == 0
    assert b"hello" in here.run(key, "train", "-W", "localhost:8080", given=b"GET / HTTP/1.0\r\n\r\n").stdout
    local, dynamic = free_port(), free_port()
    words = ["-N", "-L", f"127.0.0.1:{local}:localhost:8080", "-D", f"127.0.0.1:{dynamic}"]
    words += ["-L", f"{here.folder}/far.sock:/home/work/none.sock"]
    forwarding = subprocess.Popen(here.ssh(key, "train", *words, ExitOnForwardFailure="yes"))
    try:
        assert b"hello" in page_of(local)
        assert b"hello" in page_through_socks(dynamic, "localhost", 8080)
        for foreign in ("169.254.169.254", "172.17.0.1", "example.org"):
            assert page_through_socks(dynamic, foreign, 80) == b""
        with socket.socket(socket.AF_UNIX) as nothing:
            nothing.connect(f"{here.folder}/far.sock")
            nothing.settimeout(patient(10))
            assert nothing.recv(10) == b""  # nobody listens there
    finally:
        forwarding.kill()  # it may sleep through a signal that comes just before it waits
        forwarding.wait(patient(10))
    here.run(key, "train", "-O", "exit", **control)
