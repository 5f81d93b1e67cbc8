"""``sftp folders@host``: the session that opens all folders starts by connecting, and nothing but files is in it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.gates.sshgate.link import GuestRefused
from backendai.gates.sshgate.visit import only_files
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, place, report_of
from tests.mount_tools import ready_folder, storage_host
from tests.patience import patient
from tests.sshgate.stage import Stage

REFUSED = [
    "id", "", "sh -c id", "scp", "scp -S sh -t x", "scp -t x; id", "scp x y", "scp -oProxyCommand=id -t x", "rsync",
    "rsync --server --daemon .", "rsync --server --config=x --daemon", "rsync --server --rsh=sh . x", "rsync x y",
    "RSYNC=1 rsync --server . x", "/tmp/rsync --server . x", "'", "rsync --server --log-file=x . y",
]  # fmt: skip


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_more_than_copying_files_is_refused(command: str) -> None:
    for question in ({"op": "exec", "command": command}, {"op": "exec", "command": "scp -t x", "pty": {}}):
        with pytest.raises(GuestRefused):
            only_files(question)


def test_no_shell_reads_what_is_copied() -> None:
    told = only_files({"op": "exec", "command": "rsync --server -e.LsfxCIvu . 'a b;id'", "env": {"LANG": "C"}})
    assert told == {"op": "transfer", "argv": ["rsync", "--server", "-e.LsfxCIvu", ".", "a b;id"], "env": {"LANG": "C"}}
    assert only_files({"op": "exec", "command": "scp -r -p -t /x"})["argv"] == ["scp", "-r", "-p", "-t", "/x"]
    assert only_files({"op": "sftp", "env": {}})["op"] == "sftp"
    for question in ({"op": "exec", "command": None}, {"op": "dial", "port": 80, "host": ""}):
        with pytest.raises(GuestRefused):
            only_files(question)


@pytest.mark.django_db(transaction=True)
def test_connecting_starts_the_session_and_opens_files_alone(cast: Cast, here: Stage) -> None:
    make_group()
    make_image()
    ready_folder(cast.alice, "data", host=storage_host("local", make_agent()))
    ready_folder(cast.alice, "distant", host=storage_host("elsewhere"))
    key = here.new_key("alice", cast.alice)
    local = here.folder / "local"
    local.write_bytes(b"hello" * 1000)
    batch = here.folder / "batch"
    batch.write_text(f"put {local} there\nget there {here.folder}/back\n")
    words = [*here.options(key), "-P", str(here.port), "-b", str(batch), "folders@127.0.0.1"]
    copying = subprocess.Popen(["sftp", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    beside = subprocess.Popen(here.ssh(key, "folders", "scp -f there"), stdin=subprocess.DEVNULL)
    session = _started_by_connecting(here)
    told = copying.communicate(timeout=patient(30))[1]
    try:
        assert copying.returncode == 0, told
        assert b"Not opened here" in told and b": distant" in told
        assert beside.wait(30) in (0, 1), "both clients reach the one session"
        assert (here.folder / "back").read_bytes() == local.read_bytes()
        assert sum(Allocation.objects.filter(slot="cpu").values_list("amount", flat=True)) == 100
        back = here.copy("scp", key, "-O", "folders@127.0.0.1:there", str(here.folder / "old"))
        assert back.returncode == 0 and (here.folder / "old").stat().st_size == 5000, back
        for command in ((), ("id",), ("-tt",), ("scp -t x; id",)):
            refused = here.run(key, "folders", *command, given=b"id\n")
            assert refused.returncode == 255 and b"for files alone" in refused.stderr and b"uid" not in refused.stdout
        assert b"files alone" in here.run(key, "folders", "-W", "localhost:22", LogLevel="INFO").stderr
        assert ComputeSession.objects.count() == 1
    finally:
        for kernel in session.kernels.all():
            here.backend.remove(kernel.pk)


def _started_by_connecting(here: Stage) -> ComputeSession:
    """Do the scheduler's and the agent's part for the session that the gate asks for."""
    until = time.monotonic() + 20
    while (session := ComputeSession.objects.first()) is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    agent = Agent.objects.get()
    place(session, agent)
    here.run_kernels(session)
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c1"))
    return session


@pytest.mark.django_db(transaction=True)
def test_somebody_without_folders_is_told_so(cast: Cast, here: Stage) -> None:
    make_group()
    make_image()
    key: Path = here.new_key("alice", cast.alice)
    assert b"You have no folder to open" in here.copy("sftp", key, "folders@127.0.0.1").stderr
    assert not ComputeSession.objects.exists()
