"""Proxies in front of the gate name the client; nobody else does, and health checks see the gate all the same."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest
import uvloop

from backendai.gates.sshgate import server
from backendai.gates.sshgate.proxy_header import BadHeader, Proxies, read_header
from backendai.gates.sshgate.server import MOST_PER_ADDRESS, serving
from backendai.ops import alive
from backendai.ops.checks import check_ssh
from backendai.ops.doctor import ssh as doctor
from tests.patience import patient

HEADERS = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"SSH-2.0-x\r\n12345",
    b"PROXY TCP4 1.2.3.4\r\n",
    b"PROXY TCP4 x y 1 2\r\n",
    b"PROXY TCP9 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY " + b"x" * 200,
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1",
    b"",
    b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c" + bytes(12),
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x02ab",
    b"\r\n\r\n\0\r\nQUIT\n\x21",
]


def header(data: bytes, address: str = "10.0.0.5") -> str:
    async def walk() -> str:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.sendall(data)
        theirs.close()
        try:
            return await read_header(ours, address, Proxies(["10.0.0.5", "10.64.0.0/26"]))
        finally:
            ours.close()

    return uvloop.run(walk())


@pytest.mark.parametrize("data", HEADERS)
def test_a_bad_line_of_a_proxy_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        header(data)


def test_a_proxy_says_the_address_and_nobody_else_does() -> None:
    line = b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 22\r\n"
    assert header(line) == "1.2.3.4"
    assert header(b"PROXY UNKNOWN\r\n") == "10.0.0.5"
    assert header(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04" + bytes(8)) == "1.2.3.4"
    assert header(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0") == "10.0.0.5"
    assert header(line, address="10.64.0.7") == "1.2.3.4"
    assert header(line, address="::ffff:10.64.0.7") == "1.2.3.4"
    for address in ("9.9.9.9", "10.64.0.64", "127.0.0.1", "::1"):
        with pytest.raises(BadHeader):
            header(line, address=address)


def test_a_health_check_of_the_same_machine_names_no_client() -> None:
    assert header(b"PROXY UNKNOWN\r\n", address="127.0.0.1") == "127.0.0.1"
    assert header(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", address="::1") == "::1"
    with pytest.raises(BadHeader):
        header(b"PROXY UNKNOWN\r\n", address="9.9.9.9")


def test_a_proxy_with_a_name_is_found_at_its_present_addresses_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [0.0], list[str]()
    answers: dict[str, list[str]] = {"sshproxy": ["10.0.0.5", "::ffff:10.0.0.6"]}

    def look_up(name: str, *rest: object, **more: object) -> list[Any]:
        asked.append(name)
        if name not in answers:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0)) for address in answers[name]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    proxies = Proxies(["sshproxy", "elsewhere.example.org", "10.1.0.0/24"], clock=lambda: clock[0])

    async def known(*addresses: str) -> list[bool]:
        return [await proxies.include(ip_address(address)) for address in addresses]

    async def walk() -> None:
        assert await known("10.0.0.5", "10.0.0.6", "10.0.0.1", "10.1.0.9") == [True, True, False, True]
        assert asked == ["sshproxy", "elsewhere.example.org"]
        answers["sshproxy"] = ["10.0.0.7"]
        clock[0] = 2.0
        assert await known("10.0.0.5", "10.0.0.7") == [False, True]
        answers.clear()
        clock[0] = 4.0
        assert await known("10.0.0.7", "10.1.0.9") == [False, True]

    asyncio.run(walk())  # uvloop looks names up by itself, where no test can answer


@pytest.mark.parametrize("proxy", ["10.0.0.5", "10.0.0.0/24", "fd00::5", "sshproxy", "lb-1.example.org"])
def test_the_setting_takes_addresses_networks_and_names(settings: Any, proxy: str) -> None:
    settings.SSH_PROXIES = [proxy]
    assert check_ssh() == []


@pytest.mark.parametrize("proxy", ["10.0.0.300", "10.0.0.5/24", "0.0.0.0/0", "http://lb", "lb:22", "a_b", "-lb"])
def test_the_setting_takes_no_other_text(settings: Any, proxy: str) -> None:
    settings.SSH_PROXIES = [proxy]
    assert [one.id for one in check_ssh()] == ["portal.E019"]


async def client_by_proxy(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the connection of a client of this address after the gate's first line, or its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"PROXY TCP4 {address} 10.0.0.1 1000 22\r\n".encode())
    assert (await reader.readline()).startswith(b"SSH-2.0-")
    return reader, writer


async def has_ended(reader: asyncio.StreamReader) -> bool:
    """Return whether nothing follows what the gate sends to begin with."""
    try:
        return not await reader.read(64)
    except ConnectionError:
        return True


async def banner_by_proxy(port: int, address: str) -> tuple[bytes, asyncio.StreamWriter]:
    """Return what the gate says first to a client of this address, whose connection stays half open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"PROXY TCP4 {address} 10.0.0.1 1000 22\r\n".encode())
    try:
        return await asyncio.wait_for(reader.read(8), patient(5)), writer
    except ConnectionError:
        return b"", writer


def test_behind_a_proxy_one_client_takes_no_places_of_others(settings: Any) -> None:
    settings.SSH_PROXIES = ["127.0.0.1"]

    async def walk() -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = listener.getsockname()[1]
        async with serving(listener):
            greedy = [await banner_by_proxy(port, "1.2.3.4") for _ in range(MOST_PER_ADDRESS + 3)]
            assert [told for told, _ in greedy] == [b"SSH-2.0-"] * MOST_PER_ADDRESS + [b""] * 3
            other = await banner_by_proxy(port, "5.6.7.8")
            assert other[0] == b"SSH-2.0-"
            for _, writer in [*greedy, other]:
                writer.close()
        listener.close()

    uvloop.run(walk())


def test_eight_greedy_addresses_keep_nobody_else_out(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SSH_PROXIES = ["127.0.0.1"]
    monkeypatch.setattr(server, "MOST_UNKNOWN", 16)
    monkeypatch.setattr(server, "MOST_PER_ADDRESS", 2)

    async def walk() -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = listener.getsockname()[1]
        async with serving(listener):
            async with asyncio.timeout(patient(20)):
                addresses = ["9.9.9.9", *(f"1.2.3.{number % 8}" for number in range(16))]
                addresses += [f"5.6.{number}.8" for number in range(3)]
                clients = [await client_by_proxy(port, address) for address in addresses]
                for _, writer in clients:
                    writer.write(b"SSH-2.0-waits\r\n")
                ended = [await has_ended(reader) for reader, _ in clients]
            assert ended == [False] + [True] * 4 + [False] * 15  # one for each of the four others, the oldest first
            for _, writer in clients:
                writer.close()
        listener.close()

    uvloop.run(walk())


@pytest.mark.parametrize("proxies", ["", "10.0.0.5", "127.0.0.0/8", "localhost"])
def test_health_checks_see_a_gate_behind_a_proxy(settings: Any, monkeypatch: pytest.MonkeyPatch, proxies: str) -> None:
    settings.SSH_PROXIES = [proxies] if proxies else []
    monkeypatch.setenv("BACKENDAI_SSH_PROXIES", proxies)

    async def walk() -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = listener.getsockname()[1]
        async with serving(listener):
            assert await asyncio.to_thread(alive.main, ["ssh", f"127.0.0.1:{port}"]) == 0
            assert (await asyncio.to_thread(doctor.gate, "127.0.0.1", port)).level == "ok"
        listener.close()

    uvloop.run(walk())
