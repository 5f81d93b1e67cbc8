"""Sign-ins that are refused: nothing but a key opens, and what was tried is in the audit trail."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncssh
import pytest
from asyncssh.connection import SSHConnection
from asyncssh.packet import Boolean, String

from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.gates.gateways.guard import Unknown
from backendai.gates.sshgate import counts
from backendai.gates.sshgate import server as refusals
from backendai.gates.sshgate.server import Refusals
from tests.sshgate.stage import Stage, connect, stage

SECRET = "hunter2-instead-of-a-name"


@pytest.mark.django_db(transaction=True)
def test_brute_force_leaves_one_entry_without_what_was_typed() -> None:
    refused = counts.registry.get_sample_value("backendai_ssh_refused_total") or 0
    with stage() as here:
        for _ in range(3):
            assert here.run(here.folder / "none", SECRET, "id").returncode == 255
        assert b"Permission denied" in here.run(here.new_key("stranger"), SECRET, "id").stderr
        assert not AuditEntry.objects.exists()
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.actor, entry.target_id) == ("ssh.refuse", None, "127.0.0.1")
    assert entry.address == "127.0.0.1"
    assert entry.details == {"attempts": 4, "keys": 1}
    assert counts.registry.get_sample_value("backendai_ssh_refused_total") == refused + 4
    assert SECRET not in str(list(AuditEntry.objects.values_list()))


REQUESTS = [
    (String("password"), Boolean(False), String("secret")),
    (String("password"), Boolean(True), String("secret"), String("secret")),
    (String("keyboard-interactive"), String(""), String("pam")),
    (String("hostbased"), String("ssh-ed25519"), String(b"x"), String("localhost"), String("root"), String(b"x")),
    (String("gssapi-with-mic"), String(b"x")),
    (String("publickey"), Boolean(True), String("ssh-ed25519"), String(b"x" * 51), String(b"x" * 83)),
    (String("none"),),
    (String("nonsense"), String(b"\xff" * 1000)),
]


@pytest.mark.django_db(transaction=True)
def test_nothing_but_a_key_is_a_way_in(here: Stage, session: ComputeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client insists on methods that the server has not offered."""
    heard: list[list[bytes]] = []

    def refused(connection: Any, _type: int, _id: int, packet: Any) -> None:
        heard.append(packet.get_namelist())
        if len(heard) > len(REQUESTS):
            connection._force_close(asyncssh.PermissionDenied("every way is refused"))
        else:
            connection.send_packet(50, String("train"), String("ssh-connection"), *REQUESTS[len(heard) - 1])

    stranger = here.new_key("stranger")
    monkeypatch.setitem(SSHConnection._packet_handlers, 51, refused)

    async def walk() -> None:
        with pytest.raises(asyncssh.PermissionDenied):
            await connect(here, stranger)

    asyncio.run(walk())
    assert heard == [[b"publickey"]] * (len(REQUESTS) + 1)


def test_addresses_beyond_a_limit_are_summed_and_what_is_not_written_is_kept() -> None:
    counted, written = Refusals(), []

    async def away(_: object) -> None:
        raise Unknown

    async def write(question: object) -> None:
        written.append(question)

    async def walk() -> None:
        for number in range(refusals._MOST_ADDRESSES + 5):
            counted.note(f"10.0.0.{number}", 2)
        await counted.write(away)
        counted.note("10.0.0.1", 1)
        assert (counted._attempts["10.0.0.1"], counted._keys["10.0.0.1"]) == (2, 3)
        assert counted._attempts["other addresses"] == 5
        assert len(counted._attempts) == refusals._MOST_ADDRESSES + 1
        await counted.write(write)
        await counted.write(write)

    asyncio.run(walk())
    assert len(written) == 1
