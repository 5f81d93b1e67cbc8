"""Runs programs for remote clients: a command or a login shell, on a pseudo-terminal or on three streams."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import math
import os
import pty
import pwd
import shutil
import signal
import termios
from pathlib import Path
from typing import Any

from backendai.agent.guest import kit
from backendai.agent.guest.code.checking import Refused
from backendai.agent.guest.link.relaying import File, Relay, Started, set_size
from backendai.agent.guest.link.sockets import gone
from backendai.agent.guest.processes import home_folder, start_folder
from backendai.base.wire import guest_frames as frames

# What is read of a terminal after its program's end, as other programs may keep it open: it holds some 64 KiB at most.
_LAST = (1.0, 128 * 1024)  # seconds, bytes
_SHELL_NAMES = ("bash", "sh", "ash")
# Programs that clients start on the server, and their packages.
_ASKED_FOR = {"rsync": "rsync", "scp": "scp"}
_ASKED_FOR.update(dict.fromkeys(("git-receive-pack", "git-upload-pack", "git-upload-archive"), "git"))
_FAREWELL_SECONDS = 5.0


async def run(order: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Run a program to its end and send its exit status. Hangs up its process group if the client disconnects. Raises
    Refused."""
    program = await _start(order)
    writer.write(b"{}\n")
    if greeting := _greeting(order):
        writer.write(frames.frame(frames.STDOUT, greeting))
    relay = Relay(program, reader, writer)
    ending = asyncio.ensure_future(_end(program, relay))
    leaving = asyncio.ensure_future(gone(writer))
    left: list[asyncio.Future[Any]] = [relay.has_left, leaving]
    try:
        await asyncio.wait([*left, ending], return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            relay.farewell(frames.frame(frames.EXIT, json.dumps(ending.result()).encode()))
            # The client disconnects after it has read the exit status. Closing earlier makes its next write fail,
            # and an unread exit status would be lost.
            await asyncio.wait(left, timeout=_FAREWELL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (ending, leaving):
            task.cancel()
        await asyncio.gather(ending, leaving, return_exceptions=True)
        relay.close()
        program.close()


def _greeting(order: dict[str, Any]) -> bytes:
    """Return the greeting of a login shell on a terminal, with advice about tmux; empty for commands and with a
    ``.hushlogin``."""
    told = str(order.get("greeting") or "")
    if (
        not told
        or order.get("pty") is None
        or order.get("command") is not None
        or Path(home_folder(), ".hushlogin").exists()
    ):
        return b""
    tmux = kit.tmux(os.environ.get("PATH") or os.defpath)
    after = f"Programs end with this connection. To keep them, and to come back to them: {tmux} new -A -s main"
    lines = [told, after if tmux else "Programs end with this connection."]
    return "".join(f"{line}\r\n" for line in lines).encode(errors="replace")


async def _start(order: dict[str, Any]) -> Started:
    command = order.get("command")
    shell = login_shell()
    name = Path(shell).name
    # A name with a leading dash makes the shell a login shell.
    argv = [f"-{name}"] if command is None else [name, "-c", str(command)]
    if order["op"] == "transfer":  # arguments that no shell interprets
        argv = [str(word) for word in order["argv"]]
        command = argv[0]
    terminal, environ = order.get("pty"), environment(order, shell)
    _check_program(str(command or ""), environ["PATH"])
    program = shutil.which(argv[0], path=environ["PATH"]) if order["op"] == "transfer" else shell
    options = {"executable": program, "env": environ, "cwd": start_folder(), "start_new_session": True}
    try:
        return await (_on_streams(argv, options) if terminal is None else _on_terminal(argv, options, dict(terminal)))
    except (OSError, ValueError) as error:
        raise Refused("not-started", f"The program cannot be started: {error}") from error


def _check_program(command: str, path: str) -> None:
    """Raise Refused if the command is a missing rsync, scp or git: clients do not show the shell's own message well."""
    name = command.strip().partition(" ")[0]
    package = _ASKED_FOR.get(name)
    if package is None or shutil.which(name, path=path):
        return
    where = "its image" if package == "git" else "its image, or on the machine of its agent"
    raise Refused("program-missing", f"There is no {package} in this session: install {package} in {where}.")


async def _on_streams(argv: list[str], options: dict[str, Any]) -> Started:
    ends = [os.pipe() for _ in range(3)]
    ours = [ends[0][1], ends[1][0], ends[2][0]]
    theirs = [ends[0][0], ends[1][1], ends[2][1]]
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2], **options
        )
    except BaseException:
        for file in ours:
            os.close(file)
        raise
    finally:
        for file in theirs:
            os.close(file)
    return Started(process, [File(file) for file in ours], terminal=False)


async def _on_terminal(argv: list[str], options: dict[str, Any], told: dict[str, Any]) -> Started:
    master, slave = pty.openpty()
    try:
        set_size(master, told)
        options["env"]["SSH_TTY"] = os.ttyname(slave)

        def own() -> None:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        process = await asyncio.create_subprocess_exec(
            *argv, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own, **options
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return Started(process, [File(master)], terminal=True)


async def _end(program: Started, relay: Relay) -> dict[str, Any]:
    """Wait for the program and its output; returns its exit code or signal."""
    code = await program.process.wait()
    await relay.last_output(*(_LAST if program.is_terminal else (math.inf, math.inf)))
    if code >= 0:
        return {"code": code}
    with contextlib.suppress(ValueError):
        return {"signal": signal.Signals(-code).name[3:]}
    return {"code": 128 - code}


def login_shell() -> str:
    """Return the path of the user's shell, else of the first available one. Raises Refused."""
    with contextlib.suppress(KeyError):
        told = pwd.getpwuid(os.getuid()).pw_shell
        if told and Path(told).name not in ("nologin", "false") and os.access(told, os.X_OK):
            return told
    found = next(filter(None, map(shutil.which, _SHELL_NAMES)), None)
    if found is None:
        raise Refused("no-shell", "The image of this session has no shell.")
    return found


def environment(order: dict[str, Any], shell: str) -> dict[str, str]:
    """Return the kernel's environment variables with those of the order."""
    own = dict(os.environ)
    with contextlib.suppress(KeyError):
        own.setdefault("USER", pwd.getpwuid(os.getuid()).pw_name)
    own.setdefault("LOGNAME", own.get("USER", ""))
    own.setdefault("HOME", home_folder())
    own["PATH"] = kit.search_path(own.get("PATH") or os.defpath)
    told = {str(name): str(value) for name, value in dict(order.get("env") or {}).items()}
    return {**own, "SHELL": shell, **{name: value for name, value in told.items() if "\0" not in name + value}}
