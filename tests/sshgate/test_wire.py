"""What is refused, cut or survived on the wire: session keys, forwarded agents and displays, floods at the door."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asgiref.sync import sync_to_async
from asyncssh.connection import SSHConnection
from asyncssh.constants import MSG_IGNORE
from asyncssh.packet import Boolean, String
from django.conf import settings

from backendai.domain.compute.models import ComputeSession
from backendai.gates.gateways.ssh_access import key_of
from backendai.gates.sshgate import server
from backendai.gates.sshgate.connection import MOST_OFFERS
from tests.cast import Cast
from tests.effort import some
from tests.patience import patient
from tests.sshgate.stage import Stage, connect, stage
from tests.sshgate.test_after_login import ATTACKS

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_key_of_a_session_opens_it_until_it_is_replaced(cast: Cast, here: Stage, session: ComputeSession) -> None:
    private = here.folder / "id_train"
    private.write_text(key_of(cast.alice, session)[0])
    private.chmod(0o600)
    running = subprocess.Popen(here.ssh(private, "work", "echo on; exec sleep 60"), stdout=subprocess.PIPE)
    assert running.stdout is not None and running.stdout.readline() == b"on\n"
    renewed = key_of(cast.alice, session, renew=True)[0]
    assert running.wait(patient(15)) == 255
    running.stdout.close()
    assert b"Permission denied" in here.run(private, "work", "id").stderr
    private.write_text(renewed)
    assert here.run(private, "work", "echo on").stdout == b"on\n"


@pytest.fixture
def ssh_agent(here: Stage) -> Iterator[str]:
    path = str(here.folder / "agent.sock")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    while not Path(path).exists():
        assert agent.poll() is None
        time.sleep(0.02)
    yield path
    agent.terminate()
    agent.wait(patient(10))


def test_agents_and_displays_are_not_forwarded(
    here: Stage, key: Path, session: ComputeSession, ssh_agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", ssh_agent)
    monkeypatch.setenv("DISPLAY", ":9")
    told = here.run(key, "train", "echo [$SSH_AUTH_SOCK] [$DISPLAY]", ForwardAgent="yes", ForwardX11="yes")
    assert told.stdout == b"[] []\n"


def test_many_rounds_of_new_keys_lose_no_byte(here: Stage, key: Path, session: ComputeSession) -> None:
    async def walk() -> None:
        async with connect(here, key, rekey_bytes=20_000) as connection:
            told = await connection.run("cat", input=b"x" * 1_000_000, encoding=None)
            assert told.stdout == b"x" * 1_000_000

    asyncio.run(walk())


def test_the_gate_sends_no_packets_that_say_nothing(
    here: Stage, key: Path, session: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    monkeypatch.setitem(
        SSHConnection._packet_handlers, MSG_IGNORE, lambda one, *_: said.append(one) if one.is_client() else None
    )

    async def walk() -> None:
        async with connect(here, key) as connection:
            assert (await connection.run("cat", input="on")).stdout == "on"

    asyncio.run(walk())
    assert not said


@some("name", [b"", b"a\0b", b"x" * 1023, b"x" * 5000, b"\xff\xfe", b"train\n", b"+" * 300], 2)
def test_odd_names_hold_up_nobody(
    here: Stage, key: Path, session: ComputeSession, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    stranger = here.new_key("stranger")
    blob = asyncssh.read_public_key(f"{stranger}.pub").public_data
    words = (String("publickey"), Boolean(False), String("ssh-ed25519"), String(blob))
    answers = []

    def refused(connection: Any, _type: int, _id: int, packet: Any) -> None:
        answers.append(packet.get_namelist())
        if len(answers) == 1:
            connection.send_packet(50, String(name), String("ssh-connection"), *words)
        else:
            connection._force_close(asyncssh.PermissionDenied("refused"))

    async def walk() -> None:
        with monkeypatch.context() as patched:
            patched.setitem(SSHConnection._packet_handlers, 51, refused)
            with pytest.raises((asyncssh.Error, OSError)):
                await connect(here, stranger)
        async with connect(here, key) as bystander:
            assert (await bystander.run("echo on")).stdout == "on\n"

    asyncio.run(walk())
    assert answers


def test_so_many_keys_may_be_offered_and_no_more(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger, offers = here.new_key("stranger"), 0
    blob = asyncssh.read_public_key(f"{stranger}.pub").public_data

    def refused(connection: Any, _type: int, _id: int, packet: Any) -> None:
        nonlocal offers
        offers += 1
        words = (String("publickey"), Boolean(False), String("ssh-ed25519"), String(blob))
        connection.send_packet(50, String("train"), String("ssh-connection"), *words)

    monkeypatch.setitem(SSHConnection._packet_handlers, 51, refused)

    async def walk() -> None:
        with pytest.raises((asyncssh.Error, OSError)):
            await connect(here, stranger)

    asyncio.run(walk())
    assert MOST_OFFERS - 1 <= offers <= MOST_OFFERS + 2


def test_a_half_open_connection_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOGIN_SECONDS", 0.5)

    async def walk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(patient(10)):
            assert (await reader.readline()).startswith(b"SSH-2.0-")
            writer.write(b"SSH-2.0-slow\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()

    with stage() as here:
        asyncio.run(walk(here.port))


QUICK = ("packet size", "x11 channel", "agent channel", "remote forward", "data nowhere", "unknown packet", "long name")


def test_attacks_after_the_sign_in_leave_no_task_and_no_descriptor(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    """A few of the attacks, each by a connection of its own; all of them run with the long tests."""

    async def strike(bystander: asyncssh.SSHClientConnection, names: tuple[str, ...]) -> None:
        for name in names:
            with contextlib.suppress(asyncssh.Error, OSError):
                async with asyncio.timeout(patient(20)), connect(here, key) as connection:
                    await ATTACKS[name](connection)
                    connection.abort()
            told = await asyncio.wait_for(bystander.run("echo on"), patient(10))
            assert told.stdout == "on\n", name

    async def walk() -> None:
        async with connect(here, key) as bystander:
            await strike(bystander, QUICK[:1])  # what is opened once and kept
            before = await sync_to_async(descriptors)()
            await strike(bystander, QUICK)
            async with asyncio.timeout(patient(20)):
                while await sync_to_async(descriptors)() > before:
                    await asyncio.sleep(0.1)

    asyncio.run(walk())


def descriptors() -> int:
    """Return the number of open sockets, pipes and terminals. Files do not count: each thread of the gate that asks the
    database keeps it open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was that of the list
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(target.startswith(("socket:", "pipe:", "/dev/pt")) for target in found)


def test_the_own_server_of_files_copies_and_follows_links_as_its_user(here: Stage) -> None:
    """The server in Python, which serves where neither image nor kit has one, with OpenSSH's client."""
    home, back = here.folder / "home", here.folder / "back"
    home.mkdir()
    content = os.urandom(1_000_000)
    (here.folder / "big").write_bytes(content)
    (home / "link").symlink_to("/proc/self/environ")
    (home / "loop").symlink_to("loop")
    batch = here.folder / "batch"
    lines = [
        f"cd {home}", f"put {here.folder}/big big", "rename big moved", f"get moved {back}", "mkdir d", "rmdir d",
        "chmod 600 moved", "ln -s moved short", "ls -l", "-get loop /tmp/never", f"-get {'x' * 1024} /tmp/never",
        "rm short", "df",
    ]  # fmt: skip
    batch.write_text("\n".join(lines) + "\n")
    environ = os.environ | {"PYTHONPATH": str(settings.BASE_DIR)}
    script = here.folder / "serve.py"
    script.write_text("from backendai.agent.guest.serve import main\nmain()\n")
    program = f"{sys.executable} {script} sftp"
    told = subprocess.run(
        ["sftp", "-D", program, "-b", str(batch)], capture_output=True, timeout=60, check=False, env=environ
    )
    assert told.returncode == 0, told
    assert back.read_bytes() == content and (home / "moved").stat().st_mode & 0o777 == 0o600
    assert not (home / "short").is_symlink() and not Path("/tmp/never").exists()
