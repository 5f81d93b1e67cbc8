"""A native kernel's first process: runs the main program, opens shells on request, reaps their children.

It uses only the standard library and imports everything at the top, as the interpreter's folder may be unreachable
after the change of user. Its arguments are a JSON object (see ``launch``) and the descriptors of two sockets
and a file. The first socket leads to the runner: one JSON object per line up, one word per line down. The second
listens for the agent. A request for a shell is answered with a descriptor of the pseudo-terminal's controlling side,
one for a program with its pid, by which the agent can later ask for the exit code.

The file contains the environment of the kernel's programs. This process does not use it: users set variables such as
LD_PRELOAD, which must have no effect before rights are dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import termios
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_EASIER_TO_KILL = b"300"  # if the machine runs out of memory, kernels are killed before the platform
_ANSWER_TIMEOUT = 5.0
_MOST_ENDS = 256  # saved exit codes of programs that the agent started; older ones are dropped


def main(order: dict[str, Any], channel: socket.socket, listener: socket.socket) -> None:
    """Serve until the runner closes the channel. The runner kills the remaining processes."""
    become_harmless(order)
    signalled, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        main_pid = spawn(order["main"], order)
    except OSError as error:
        tell(channel, failed=f"{order['main'][0]}: {error.strerror}")
        return
    tell(channel, started=True)
    ends: dict[int, int | None] = {}
    while True:
        sources: list[Any] = [channel, listener, signalled]
        ready, _, _ = select.select(sources, [], [])
        if signalled in ready:
            os.read(signalled, 4096)
            reap(main_pid, channel, ends)
        if listener in ready:
            answer(listener, order, ends)
        if channel in ready:
            if not (words := channel.recv(4096)):
                return
            if b"term" in words:
                signal_group(main_pid, signal.SIGTERM)


def become_harmless(order: dict[str, Any]) -> None:
    """Drop rights: change the user if ordered, no new privileges, no core files, a limit of processes."""
    if order["uid"] is not None:
        os.setgroups([])
        os.setresgid(order["uid"], order["uid"], order["uid"])
        os.setresuid(order["uid"], order["uid"], order["uid"])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # set here, as a change of user clears it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order["pids"] is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        limit = order["pids"] if hard == resource.RLIM_INFINITY else min(order["pids"], hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def spawn(argv: list[str], order: dict[str, Any], terminal: int | None = None) -> int:
    """Start a program in its own session, on ``terminal`` if given; returns its pid. Raises OSError."""
    errors, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become(argv, order, terminal)
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(failed)
    with os.fdopen(errors, "rb") as stream:
        number = stream.read()
    if number:
        raise OSError(int(number), os.strerror(int(number)))
    return pid


def _become(argv: list[str], order: dict[str, Any], terminal: int | None) -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:  # noqa: PTH123
        file.write(_EASIER_TO_KILL)
    environ = dict(order["environ"])
    if terminal is not None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for standard in (0, 1, 2):
            os.dup2(terminal, standard)
        environ["TERM"] = "xterm-256color"
    os.chdir(order["workdir"])
    environ["PWD"] = order["workdir"]  # without a sandbox folders are links: programs show this name
    os.execvpe(argv[0], argv, environ)  # noqa: S606


def reap(main_pid: int, channel: socket.socket, ends: dict[int, int | None]) -> None:
    """Reap all ended children. Reports the main program's end to the runner, and saves exit codes of those in
    ``ends``."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        code = code if code >= 0 else 128 - code
        if pid == main_pid:
            tell(channel, exited=code)
        elif pid in ends:
            ends[pid] = code


def answer(listener: socket.socket, order: dict[str, Any], ends: dict[int, int | None]) -> None:
    """Answer one request of the agent (a JSON object): open a shell, start a program, or return an exit code."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(_ANSWER_TIMEOUT)
        try:
            request = json.loads(connection.recv(65536))
            if "program" in request:
                pid = start_program(request["program"], order, request.get("environ", {}))
                ends[pid] = None
                for old in list(ends)[:-_MOST_ENDS]:
                    del ends[old]
                connection.send(json.dumps({"started": True, "pid": pid}).encode())
                return
            if "ended" in request:
                connection.send(json.dumps({"exit_code": ends.get(request["ended"], 0)}).encode())
                return
            master = open_shell(request, order)
        except (OSError, ValueError, KeyError) as error:
            with contextlib.suppress(OSError):
                connection.send(json.dumps({"error": str(error)}).encode())
            return
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [b"{}"], [master])
        os.close(master)


def start_program(argv: list[str], order: dict[str, Any], environ: dict[str, str]) -> int:
    """Start a program with the rights and environment of the main program, and these variables; returns its pid. Raises
    OSError."""
    return spawn([*order["wait"], *argv], order | {"environ": order["environ"] | environ})


def open_shell(request: dict[str, Any], order: dict[str, Any]) -> int:
    """Start (or attach to) the shell ``name`` on a new pseudo-terminal; returns its controlling side."""
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", request["rows"], request["cols"], 0, 0))
        spawn([*order["wait"], *shell(request["name"], order["tmux"])], order, slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return master


def shell(name: str, tmux: list[str]) -> list[str]:
    """Return the command of an interactive shell, in tmux (with these options) if it is installed. A name after
    ``view-``: attaches to that shell without typing, and without starting it."""
    if name.startswith("view-"):
        return ["tmux", "-u", *tmux, "attach-session", "-r", "-t", f"={name.removeprefix('view-')}"]
    if shutil.which("tmux"):
        return ["tmux", "-u", *tmux, "new-session", "-A", "-s", name]
    return ["bash", "-l"] if shutil.which("bash") else ["/bin/sh", "-l"]


def signal_group(leader: int, number: int) -> None:
    """Send a signal to a process group, if it exists."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def tell(channel: socket.socket, **news: Any) -> None:
    """Send a message to the runner. Does nothing if the runner has ended."""
    with contextlib.suppress(OSError):
        channel.sendall(json.dumps(news).encode() + b"\n")


if __name__ == "__main__":
    channel, listener = (socket.socket(fileno=int(number)) for number in sys.argv[2:4])
    for inherited in (channel, listener):
        inherited.set_inheritable(False)
    with os.fdopen(int(sys.argv[4]), "rb") as file:
        environ = json.load(file)
    main(json.loads(sys.argv[1]) | {"environ": environ}, channel, listener)
