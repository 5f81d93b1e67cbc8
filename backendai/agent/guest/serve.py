"""The guest agent's program: connects to the agent, and opens a connection for each of its questions."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import signal
import sys
import time
from pathlib import Path

from backendai.agent.guest.code import interpreter
from backendai.agent.guest.code.journal import Journal, folder_of_kernel
from backendai.agent.guest.code.languages import known_languages, list_languages
from backendai.agent.guest.code.runners import run_interpreter, run_ipykernel
from backendai.agent.guest.guest import LARGEST_QUESTION, Guest
from backendai.agent.guest.home.sftp import serve_files
from backendai.agent.guest.link.carry import carry
from backendai.agent.guest.link.sockets import SOCKET, connect
from backendai.agent.guest.processes import Hear

VERSION = 1
IDLE_SECONDS = 600.0
_REDIAL_SECONDS = 0.2
_SAID_EVERY, _SAID_AT_MOST_EVERY = 20.0, 0.5


def serve(folder: Path, *, ipc_only: bool) -> None:
    """Serve until the guest is unused for 10 minutes. Returns at once if another guest serves this kernel."""
    data = folder_of_kernel()
    lock = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    _leave_behind(data)
    os.truncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    asyncio.run(_main(folder, data, ipc_only))


def _leave_behind(data: Path) -> None:
    """Become a daemon without open descriptors of the parent."""
    if os.fork():
        os._exit(0)
    with contextlib.suppress(OSError):
        os.setsid()
    signal.signal(signal.SIGHUP, _stay)  # with SIG_IGN, which programs inherit, they would survive their client
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(data / "guest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard, file in ((0, nothing), (1, log), (2, log)):
        os.dup2(file, standard)


def _stay(number: int, frame: object) -> None: ...


async def _main(folder: Path, data: Path, ipc_only: bool) -> None:
    start = functools.partial(_start_interpreter, ipc_only)
    languages = functools.partial(known_languages, by_path=ipc_only)
    guest = Guest(Journal(data / "journal"), start, languages, shares_network=ipc_only)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)
    answering: set[asyncio.Task[None]] = set()
    while guest.idle_seconds() < IDLE_SECONDS:
        with contextlib.suppress(OSError):
            reader, writer = await _dial(folder)
            writer.write(json.dumps({"hello": VERSION}).encode() + b"\n")
            saying = asyncio.ensure_future(_say_what_works(guest, writer))
            with contextlib.suppress(OSError, ValueError):
                await _obey(folder, guest, reader, answering)
            saying.cancel()
            writer.close()
        await asyncio.sleep(_REDIAL_SECONDS)
    await guest.close()


async def _obey(folder: Path, guest: Guest, reader: asyncio.StreamReader, answering: set[asyncio.Task[None]]) -> None:
    """Open the connections that the agent requests, until the agent disconnects or the guest is unused."""
    line = asyncio.ensure_future(reader.readline())
    while guest.idle_seconds() < IDLE_SECONDS:
        await asyncio.wait([line], timeout=30.0)
        if not line.done():
            continue
        if not (order := line.result()):
            return
        task = asyncio.ensure_future(_open(folder, guest, str(json.loads(order)["open"])))
        answering.add(task)
        task.add_done_callback(answering.discard)
        line = asyncio.ensure_future(reader.readline())
    line.cancel()


async def _say_what_works(guest: Guest, writer: asyncio.StreamWriter) -> None:
    """Report whether code runs, at each change and every 20 s while it runs."""
    said, said_at = False, 0.0
    with contextlib.suppress(OSError):
        while True:
            works = guest.is_working
            if works != said or (works and time.monotonic() - said_at >= _SAID_EVERY):
                said, said_at = works, time.monotonic()
                writer.write(json.dumps({"works": works}).encode() + b"\n")
                await writer.drain()
            await guest.next_change(_SAID_EVERY)
            await asyncio.sleep(_SAID_AT_MOST_EVERY)


async def _open(folder: Path, guest: Guest, name: str) -> None:
    with contextlib.suppress(OSError):
        reader, writer = await _dial(folder)
        writer.write(json.dumps({"stream": name}).encode() + b"\n")
        await guest.answer(reader, writer)


async def _dial(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the agent."""
    connection = connect(folder / SOCKET)
    connection.setblocking(False)
    return await asyncio.open_connection(sock=connection, limit=LARGEST_QUESTION)


async def _start_interpreter(ipc_only: bool, name: str, language: str, hear: Hear) -> interpreter.Interpreter:
    return await interpreter.start(name, language, hear, ipc_only=ipc_only)


def main() -> None:
    """Run the subcommand of the command line.

    ``serve FOLDER [ipc-only]``: the guest. ``carry FOLDER``: its connection to an agent without a shared folder.
    ``run-interpreter FD ORDER``: an interpreter. ``run-ipykernel …``: a Jupyter kernel that drops no output.
    ``list-languages``: print the languages. ``sftp``: an SFTP server on the standard streams.
    """
    if sys.argv[1] == "carry":
        carry(Path(sys.argv[2]))
    elif sys.argv[1] == "serve":
        serve(Path(sys.argv[2]), ipc_only="ipc-only" in sys.argv[3:])
    elif sys.argv[1] == "run-interpreter":
        run_interpreter(int(sys.argv[2]), json.loads(sys.argv[3]))
    elif sys.argv[1] == "list-languages":
        list_languages()
    elif sys.argv[1] == "run-ipykernel":
        run_ipykernel()
    elif sys.argv[1] == "sftp":
        serve_files()
