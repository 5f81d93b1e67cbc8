"""The Ethernet between virtual machines of one session, without machines: the test plugs itself in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backendai.agent.backends.qemu.networks import switch as qemu_switch
from backendai.agent.backends.qemu.networks.switch import Switch, hardware_address
from tests.patience import patient

EVERYBODY = b"\xff" * 6
pytestmark = pytest.mark.asyncio


class Port:
    """A machine's end of a cable."""

    def __init__(self, folder: Path, rank: int, size: int = 3) -> None:
        self.address = bytes.fromhex(hardware_address(rank).replace(":", ""))
        self.switch = Switch(folder, rank, size)
        self.cable = self.switch.plug()
        self.cable.setblocking(False)

    async def send(self, wanted: bytes, text: bytes, sender: bytes | None = None) -> None:
        frame = wanted + (sender or self.address) + b"\x08\x00" + text
        await asyncio.get_running_loop().sock_sendall(self.cable, frame)

    async def next(self) -> bytes:
        async with asyncio.timeout(patient(10)):
            frame = await asyncio.get_running_loop().sock_recv(self.cable, 65536)
        return frame[14:]

    def close(self) -> None:
        self.switch.close()
        self.cable.close()


@contextlib.asynccontextmanager
async def ports(folder: Path) -> AsyncIterator[list[Port]]:
    made = [Port(folder, rank) for rank in range(3)]
    try:
        yield made
    finally:
        for one in made:
            one.close()
        assert list(folder.iterdir()) == []


async def test_a_frame_reaches_the_kernel_that_it_names_and_one_for_all_reaches_all(tmp_path: Path) -> None:
    async with ports(tmp_path) as (first, second, third):
        await first.send(third.address, b"to-third")
        await first.send(EVERYBODY, b"to-all")
        assert [await third.next(), await third.next()] == [b"to-third", b"to-all"]
        assert await second.next() == b"to-all"


async def test_a_kernel_sends_under_no_other_address_and_none_into_the_void(tmp_path: Path) -> None:
    async with ports(tmp_path) as (first, second, third):
        await first.send(second.address, b"forged", sender=third.address)
        await first.send(b"\x02\x62\x61\x69\x00\x63", b"nobody")
        await asyncio.get_running_loop().sock_sendall(first.cable, b"short")
        await first.send(second.address, b"true")
        assert await second.next() == b"true"


async def test_who_does_not_read_holds_up_nobody_and_misses_what_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_switch, "_MOST_WAITING", 400)
    async with ports(tmp_path) as (first, second, third):
        for number in range(1000):
            await first.send(EVERYBODY, b"%d" % number)
            assert await third.next() == b"%d" % number
        seen = list[int]()
        while (text := await second.next()) != b"again":
            seen.append(int(text))
            await first.send(second.address, b"again")  # one of them finds room
        assert seen == list(range(len(seen))) and len(seen) < 1000, "the first ones, in their order"


async def test_the_largest_frames_for_a_machine_that_does_not_read_take_little_memory(tmp_path: Path) -> None:
    """A guest that sends segments of TCP as one frame each fills a queue with few frames."""
    sent = 128
    async with ports(tmp_path) as (first, second, third):
        for _ in range(sent):
            await first.send(EVERYBODY, b"x" * 60_000)
            assert len(await third.next()) == 60_000
        assert sum(len(frame) for frame in first.switch._others[second.address]._waiting) <= 1024 * 1024
        seen = 0
        while await second.next() != b"again":
            seen += 1
            await first.send(second.address, b"again")  # one of them finds room
        assert 0 < seen < sent, "the first ones are not lost"


async def test_a_kernel_that_started_again_is_reached_again(tmp_path: Path) -> None:
    async with ports(tmp_path) as made:
        await made[0].send(made[1].address, b"before")
        assert await made[1].next() == b"before"
        made[1].close()
        await made[0].send(made[1].address, b"lost")
        made[1] = Port(tmp_path, 1)
        await made[0].send(made[1].address, b"after")
        while (text := await made[1].next()) != b"after":
            assert text == b"lost", "it may be under way until the kernel is there again"


async def test_a_folder_that_lies_deep_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    async with ports(folder) as (first, second, _):
        await first.send(second.address, b"here")
        assert await second.next() == b"here"


async def test_the_end_of_a_machine_is_no_fault_of_the_switch(tmp_path: Path) -> None:
    async with ports(tmp_path) as (first, second, third):
        second.cable.close()
        await first.send(EVERYBODY, b"one")
        assert await third.next() == b"one"
