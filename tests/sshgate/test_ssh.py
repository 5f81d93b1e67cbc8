"""OpenSSH's clients into native sessions, through the gate and a real gateway."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.sshgate.stage import Stage, connect

pytestmark = pytest.mark.django_db(transaction=True)


def test_commands_run_with_three_streams_codes_and_signals(
    here: Stage, key: Path, session: ComputeSession, used: list[Any]
) -> None:
    told = here.run(key, "train", "cat; echo err >&2; exit 7", given=b"x" * 300_000)
    assert (told.returncode, told.stdout, told.stderr) == (7, b"x" * 300_000, b"err\n")
    assert here.run(key, "train", "kill -TERM $$").returncode == 255
    assert here.run(key, f"{session.pk}", "echo $LANG", SetEnv="LANG=xx").stdout == b"xx\n"
    shell = here.run(key, "train+main1", "-tt", given=b"tty; stty size; exit 3\n")
    assert shell.returncode == 3 and b"/dev/" in shell.stdout
    who = AuditEntry.objects.filter(action="ssh.connect", target_id=str(session.pk))
    assert set(used) == {session.pk}
    assert who.count() == 4 and who[0].address == "127.0.0.1"


def test_files_go_both_ways(here: Stage, key: Path, session: ComputeSession) -> None:
    local = here.folder / "local"
    local.write_bytes(bytes(range(256)) * 20_000)
    assert here.copy("scp", key, str(local), "train@127.0.0.1:sent").returncode == 0
    assert here.copy("scp", key, "train@127.0.0.1:sent", str(here.folder / "back")).returncode == 0
    assert (here.folder / "back").read_bytes() == local.read_bytes()
    batch = here.folder / "batch"
    batch.write_text("mkdir d\nput local d/x\nls -l d\nrename d/x d/y\nget d/y got\n".replace("local", str(local)))
    done = here.copy("sftp", key, "-b", str(batch), "train@127.0.0.1")
    assert done.returncode == 0, done
    assert here.run(key, "train", "cmp sent d/y && stat -c %a d/y").stdout == b"644\n"
    Path("got").unlink()


def test_ports_of_the_session_can_be_reached_and_no_others(here: Stage, key: Path, session: ComputeSession) -> None:
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    server += "c = s.accept()[0]; c.sendall(c.recv(100).upper())"
    running = subprocess.Popen(here.ssh(key, "train", f'python3 -c "{server}"'), stdout=subprocess.PIPE)
    assert running.stdout is not None
    port = int(running.stdout.readline())
    through = here.run(key, "train", "-W", f"localhost:{port}", given=b"hello")
    assert through.stdout == b"HELLO"
    running.wait(patient(10))
    running.stdout.close()
    for host in ("169.254.169.254", "10.0.0.1", "example.org", "127.0.0.1.nip.io"):
        assert b"prohibited" in here.run(key, "train", "-W", f"{host}:80", LogLevel="INFO").stderr
    assert b"Nothing is listening" in here.run(key, "train", "-W", "localhost:1", LogLevel="INFO").stderr


@pytest.fixture
def cluster(cast: Cast, here: Stage) -> Iterator[ComputeSession]:
    """Alice's session ``pair`` of two kernels."""
    session = make_running_session(cast.alice, name="pair", cluster_size=2)
    here.run_kernels(session)
    yield session
    for kernel in session.kernels.all():
        here.backend.remove(kernel.pk)


def test_names_of_kernels_lead_to_their_own_ports_and_to_no_others_of_the_machine(
    here: Stage, key: Path, cluster: ComputeSession
) -> None:
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    server += "c = s.accept()[0]; c.sendall(c.recv(100).upper() + b' of sub1')"
    running = subprocess.Popen(here.ssh(key, "pair+sub1", f'python3 -c "{server}"'), stdout=subprocess.PIPE)
    assert running.stdout is not None
    port = int(running.stdout.readline())
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        for host, number in (("main1", port), *((name, foreign.getsockname()[1]) for name in ("main1", "sub1"))):
            refused = here.run(key, "pair", "-W", f"{host}:{number}", given=b"x", LogLevel="INFO")
            assert b"Nothing is listening" in refused.stderr, (host, refused)
    assert here.run(key, "pair", "-W", f"sub1:{port}", given=b"hello").stdout == b"HELLO of sub1"
    running.wait(patient(10))
    running.stdout.close()


def test_a_login_shell_on_a_terminal_is_greeted_and_nothing_else_is(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    ComputeSession.objects.update(ends_at=timezone.now() + timedelta(hours=3, seconds=30))
    told = here.run(key, "train", "-tt", given=b"touch .hushlogin; exit\n").stdout.decode()
    first = told.splitlines()[0]
    assert first == f"Session train, kernel main1, of {session.owner.email}. It ends in 3 h."
    assert "Programs end with this connection." in told.splitlines()[1]
    for words in (("-tt",), ("-tt", "true"), (), ("true",)):
        assert b"Session train" not in here.run(key, "train", *words, given=b"exit\n").stdout


def test_a_socket_of_the_session_is_reached_by_its_path(here: Stage, key: Path, session: ComputeSession) -> None:
    server = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('x.sock'); s.listen(); import os;"
    server += "print(os.path.abspath('x.sock'), flush=True); c = s.accept()[0]; c.sendall(c.recv(100).upper())"
    running = subprocess.Popen(here.ssh(key, "train", f'python3 -c "{server}"'), stdout=subprocess.PIPE)
    assert running.stdout is not None
    path = running.stdout.readline().decode().strip()

    async def walk() -> bytes:
        async with connect(here, key) as connection:
            reader, writer = await connection.open_unix_connection(path)
            writer.write(b"hello")
            return bytes(await reader.readexactly(5))

    assert asyncio.run(walk()) == b"HELLO"
    running.wait(patient(10))
    running.stdout.close()


def test_several_things_share_one_connection(here: Stage, key: Path, session: ComputeSession) -> None:
    control = {"ControlMaster": "auto", "ControlPath": str(here.folder / "c"), "ControlPersist": "30"}
    assert here.run(key, "train", "true", **control).returncode == 0
    told = [here.run(key, "train", f"exit {code}", **control).returncode for code in (0, 1, 42)]
    assert told == [0, 1, 42]
    here.run(key, "train", "-O", "exit", **control)
    assert AuditEntry.objects.filter(action="ssh.connect").count() == 1


def test_foreign_keys_and_names_open_nothing(cast: Cast, here: Stage, key: Path, session: ComputeSession) -> None:
    bob = here.new_key("bob", cast.bob)
    refused = here.run(bob, "train", "id")
    assert refused.returncode == 255 and b"You have no session 'train'" in refused.stderr
    assert b"Permission denied" in here.run(here.new_key("nobody"), "train", "id").stderr
    assert b"no such kernel" in here.run(key, "train+sub9", "id").stderr
    assert b"train (" in here.run(key, "nothing", "id").stderr
