"""A text is looked for in all that tmux has kept, in real shells of native kernels and of containers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import APIClient

from backendai.agent.backends.base import Backend, Terminal
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.native.sandbox import Isolation
from backendai.agent.gateway.terminal import Find, read_control
from tests.agent.contract_tools import ask, read_until
from tests.agent.images import ensure_tmux_image
from tests.agent.prerequisites import need_program
from tests.agent.specs import make_spec
from tests.agent.test_process_backend import data, isolation  # noqa: F401

SOUGHT = [
    "plain words",
    "dollar $HOME",
    "quotes \" and '",
    "back \\ slash",
    "hash #{pid}",
    "a semicolon;",
    "-dash",
    "한글",
]
Opened = tuple[Backend, str]


@pytest.fixture
def native(data: Path, isolation: Isolation) -> Iterator[Opened]:  # noqa: F811
    need_program("tmux", "tmux")
    backend = NativeBackend(data / "agent", deployment="test", agent="n1")
    yield backend, IMAGE
    backend.close()


def test_texts_are_found_far_above_in_native_kernels(native: Opened) -> None:
    walk(*native)


@pytest.mark.docker
def test_texts_are_found_far_above_in_containers(backend: DockerBackend, engine: APIClient, deployment: str) -> None:
    walk(backend, ensure_tmux_image(engine), deployment)


def walk(backend: Backend, image: str, deployment: str = "test") -> None:
    spec = make_spec(image=image, deployment=deployment, slots={"cpu": "1", "mem": str(256 * 2**20)})
    backend.start(spec)

    async def look() -> None:
        terminal = await backend.open_terminal(spec.kernel_id, name="web", rows=24, cols=80)
        await ask(terminal, b"PS1=; printf %s re; echo ady\n", b"ready")
        lines = "\n".join(SOUGHT)
        await terminal.write(
            f"cat >lines <<'END'\n{lines}\nEND\nclear; cat lines; seq 1000 1200; echo do''ne\n".encode()
        )
        await read_until(terminal, b"done")
        for number, text in enumerate(SOUGHT):  # tmux says how many there are when it shows the place
            await terminal.find("find", text)
            await read_until(terminal, b" results)")
            await terminal.find("end", "")
            await ask(terminal, f"echo shell-$((100+{number}))\n".encode(), f"shell-{100 + number}".encode())
        await go_both_ways(terminal)
        await terminal.close()

    try:
        asyncio.run(look())
    finally:
        backend.remove(spec.kernel_id)


async def go_both_ways(terminal: Terminal) -> None:
    """The nearest place above comes first, and each step is one place, also where the direction changes."""
    twins = "; ".join(f"echo above-{name}; echo twin; seq 300" for name in ("one", "two"))
    await terminal.write(f"clear; {twins}; echo st''ill\n".encode())
    await read_until(terminal, b"still")
    for does, place in (("find", b"two"), ("previous", b"one"), ("next", b"two"), ("previous", b"one")):
        await terminal.find(does, "twin")
        await read_until(terminal, b"above-" + place)
    await terminal.find("end", "")


def test_only_finds_are_read_and_their_text_is_one_printable_line() -> None:
    assert read_control('{"type": "find", "does": "find", "text": "a\\nb\\u001b[0m"}') == Find("find", "ab[0m")
    assert read_control('{"type": "find", "does": "rm", "text": "x"}') is None
    assert read_control('{"type": "find"}') is None
