"""A virtual machine's supervisor: outlives the agent, runs QEMU, keeps the log, forwards streams, records the end.

It runs alone, with only the standard library, in its own session. In FOLDER it reads ``launch.json`` and, at SIGTERM,
``stop.json``; it writes ``runner.json`` after the guest's first message, ``output.log``, ``console.log`` and
``exit.json``. Agents connect to ``door.sock`` (see ``channel.control_socket``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backendai.agent.backends.native.runner import ROOM_FOR_END, KernelRunner, oom_kills, stat_fields
from backendai.agent.backends.qemu.channel.control_socket import ControlSocket
from backendai.agent.backends.qemu.channel.mux import Mux
from backendai.agent.backends.qemu.networks.switch import Switch
from backendai.agent.guest.link.sockets import connect, listen

_OPTIONS = ("sandbox=namespace", "cache=auto", "no_xattr", "no_posix_lock", "no_flock", "modcaps=-mknod:-setfcap")


class FolderServers:
    """The servers of a virtual machine's folders. ``join`` moves a new process into the virtual machine's control
    groups."""

    def __init__(self, folder: Path, program: str, environ: Mapping[str, str], join: Callable[[], None]) -> None:
        self._folder, self._program, self._environ, self._join = folder, program, environ, join
        self._servers: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, tag: str, source: str) -> int:
        """Start a folder's server; returns the descriptor of a connection for QEMU. Raises OSError."""
        with listen(self._folder / f"{tag}.sock") as listener:
            self._servers[tag] = await asyncio.create_subprocess_exec(
                *self._command(source, listener.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env=dict(self._environ),
                cwd="/",
                pass_fds=(listener.fileno(),),
                preexec_fn=self._join,
            )
        return _connected(self._folder / f"{tag}.sock")

    def cut(self, tag: str) -> None:
        """Kill a folder's server, so that the guest loses access."""
        if tag in self._servers:
            with contextlib.suppress(ProcessLookupError):
                self._servers[tag].kill()

    async def stop(self) -> None:
        """Kill all servers and wait for their ends."""
        for tag, server in self._servers.items():
            self.cut(tag)
            await server.wait()

    def _command(self, source: str, listener: int) -> Sequence[str]:
        options = [word for option in (f"source={source}", *_OPTIONS) for word in ("-o", option)]
        return [self._program, "-f", f"--fd={listener}", "--thread-pool-size=4", *options]


def _connected(path: Path) -> int:
    return connect(path).detach()


_PR_SET_PDEATHSIG = 1
_AFTER_GRACE = 5.0
_POWER_OFF = 5.0
_NOT_FOUND = 127
_NO_SHELL = b"/bin/sh cannot be started: No such file"  # the first words of the guest's init
_CONSOLE_BYTES = 32 * 1024
_LONGEST_SILENCE = 600.0
_CUT_SECONDS = 8.0
_DIGITS = 15  # in a number from the guest
_LOOK = 5.0


class QemuRunner(KernelRunner):
    """Supervises one virtual machine from its first process to its last."""

    def __init__(self, folder: Path, ready: int) -> None:
        super().__init__(folder, ready)
        self.beat: dict[str, int] = {}
        self.heard_at = time.monotonic()
        self.console = b""
        self.cuts: asyncio.Queue[int] = asyncio.Queue()
        self.over = asyncio.Event()
        session = self.launch["session"]
        self.switch = Switch(Path(session["folder"]), session["rank"], session["size"]) if session else None
        self.shares = FolderServers(folder, self.launch["virtiofsd"], self.launch["environ_outside"], self.join_cgroups)

    async def run(self) -> None:
        """Start the virtual machine, supervise it until its end, and record the end."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._obey)
        self.reserve()
        try:
            await self._serve()
        except OSError as error:
            self.end = self.end or {"failed": str(error)}
        (self.folder / "console.log").write_bytes(self.console)
        self.finish()

    async def _serve(self) -> None:
        ours, theirs = socket.socketpair()
        with listen(self.folder / "door.sock") as listener:
            self.qemu = await self._spawn(theirs)
            self.mux = Mux(self.log.append, self._hear, self.folder / "guest" / "agent.sock")
            door = await asyncio.start_unix_server(ControlSocket(self.mux, self.use, self.cut).answer, sock=listener)
            gone = asyncio.create_task(self.qemu.wait())
            works = (self._read_console(), self._serve_channel(ours, gone), self._watch())
            tasks = [asyncio.create_task(work) for work in works]
            await asyncio.wait([gone, asyncio.create_task(self.over.wait())], return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():  # the guest is about to power off
                await asyncio.wait([gone], timeout=_POWER_OFF if "exited" in self.end else 0)
            if not gone.done():
                self.qemu.kill()
                await gone
            await asyncio.wait(tasks[:2], timeout=1)  # to process the last output
            door.close()
            for task in tasks:
                task.cancel()
            await self.shares.stop()
            if self.switch is not None:
                self.switch.close()

    async def _serve_channel(self, channel: socket.socket, gone: asyncio.Task[int]) -> None:
        """Serve the guest's channel. Ends a virtual machine that continues without its channel."""
        await self.mux.run(channel)
        await asyncio.wait([gone], timeout=_POWER_OFF)
        if not gone.done() and not self.end:
            self.end = {"hung": "The virtual machine did not keep to the protocol of its channel, and was ended."}
            self.over.set()

    async def _spawn(self, channel: socket.socket) -> asyncio.subprocess.Process:
        files = {
            name: os.open(path, os.O_RDWR if name == "disk" else os.O_RDONLY)
            for name, path in self.launch["files"].items()
        }
        for tag, source in self.launch["shares"].items():
            files[tag] = await self.shares.start(tag, source)
        plugs = {"channel": channel} | ({"session": self.switch.plug()} if self.switch else {})
        files |= {name: plug.fileno() for name, plug in plugs.items()}
        argv = [word.format(**files) if "{" in word else word for word in self.launch["argv"]]
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self.launch["environ_outside"],
                cwd="/",
                pass_fds=list(files.values()),
                preexec_fn=self._become,
            )
        finally:
            for plug in plugs.values():
                plug.close()
            for file in files.keys() - plugs.keys():
                os.close(files[file])

    def _become(self) -> None:
        """In the new process: join the control groups, drop root's rights, die with the supervisor."""
        self.join_cgroups()
        if (uid := self.launch["uid"]) is not None:
            os.setgroups(self.launch["groups"])
            os.setgid(self.launch["gid"])
            os.setuid(uid)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def _hear(self, text: str) -> None:
        """Handle a message of the guest."""
        self.heard_at = time.monotonic()
        word, _, rest = text.partition(" ")
        if word == "started" and not self.end:
            self._report_start()
        elif word == "beat":
            numbers = [int(number) for number in rest.split() if number.isdigit() and len(number) <= _DIGITS]
            self.beat = dict(zip(("used", "oom", "disk", "free"), numbers, strict=False))
        elif word == "cut":
            if self.cuts.empty():
                self.cuts.put_nowait(int(rest[:_DIGITS]))
        elif word == "exited":
            code, _, kills = rest.partition(" ")
            self.end = self.end or {"exited": int(code) & 0xFF, "oom": int(kills[:_DIGITS] or 0)}
            self.over.set()
        elif word == "failed":
            self.end = self.end or {"failed": rest[:500]}
            self.over.set()

    def _report_start(self) -> None:
        try:
            self.report_start()
        except OSError as error:  # the disk is full: agents cannot find the kernel
            self.end = {"failed": str(error)}
            self.over.set()
            return
        if self.order is not None:
            self._obey()

    async def cut(self, tag: str) -> int:
        """Unmount a folder in the virtual machine; returns how many programs using it were killed."""
        while not self.cuts.empty():  # drop late answers
            self.cuts.get_nowait()
        self.mux.say(f"cut {self.launch['targets'][tag]}")
        try:
            return await asyncio.wait_for(self.cuts.get(), _CUT_SECONDS)
        except TimeoutError:
            return 0
        finally:  # even if the guest did nothing
            self.shares.cut(tag)

    def use(self) -> dict[str, Any]:
        """Return the virtual machine's resource use so far, and the seconds since the guest's last message."""
        fields = stat_fields(self.qemu.pid)
        ticks = os.sysconf("SC_CLK_TCK")
        found: dict[str, Any] = {"cpu_seconds": (int(fields[11]) + int(fields[12])) / ticks} if fields else {}
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split(": ") for line in Path(f"/proc/{self.qemu.pid}/io").read_text().splitlines())
            found |= {"io_read": int(counts["read_bytes"]), "io_write": int(counts["write_bytes"])}
        return found | self.beat | {"silent": time.monotonic() - self.heard_at}

    async def _read_console(self) -> None:
        assert self.qemu.stdout is not None
        while piece := await self.qemu.stdout.read(4096):
            self.console = (self.console + piece)[-_CONSOLE_BYTES:]

    async def _watch(self) -> None:
        """End a virtual machine whose guest has sent nothing for ten minutes."""
        while True:
            await asyncio.sleep(_LOOK)
            if time.monotonic() - self.heard_at > _LONGEST_SILENCE and not self.end:
                text = f"The virtual machine said nothing for {_LONGEST_SILENCE:.0f} seconds, and was ended."
                self.end = {"hung": text}
                self.over.set()

    def _obey(self) -> None:
        """Order the guest to end its main process; ends the virtual machine if the guest does not answer."""
        grace = self.take_order()["grace"]
        if not (self.folder / "runner.json").exists() or grace <= 0:  # no main process to end gracefully
            self.over.set()
            return
        self.mux.say(f"stop {int(grace * 1000)}")
        asyncio.get_running_loop().call_later(grace + _AFTER_GRACE, self.over.set)

    def special_end(self) -> dict[str, Any]:
        code = self.end.get("exited")
        ending: dict[str, Any] = {"exit_code": code}
        if self.order is not None:
            return ending
        if "hung" in self.end:
            return ending | {"message": self.end["hung"]}
        if "failed" in self.end:
            return ending | {"message": f"The virtual machine does not start: {self.end['failed']}."}
        if code is None:
            is_full = self.launch["cgroups"] and oom_kills(self.launch["cgroups"])
            text = "The virtual machine ended" + (": it took more memory than its limit." if is_full else ".")
            return ending | {"reason": "out-of-memory" if is_full else "exited", "message": text}
        if self.end["oom"]:
            return ending | {"starved_at": self.launch["memory"]}
        if code == _NOT_FOUND and (self.folder / "output.log").read_bytes().startswith(_NO_SHELL):
            text = "The image has no /bin/sh: its program never started."
            return ending | {"reason": "shell-missing", "message": text}
        if code and self.beat.get("disk") and self.beat.get("free", 1) < ROOM_FOR_END * 256:
            return ending | {"message": f"The main process ended with exit code {code}. {self.launch['disk_words']}"}
        return ending


def main(arguments: list[str], run: Callable[..., Any] = asyncio.run) -> None:
    """Supervise the virtual machine in the folder. The second argument is the descriptor for the start's report."""
    os.umask(0o077)
    run(QemuRunner(Path(arguments[0]), int(arguments[1])).run())


if __name__ == "__main__":
    main(sys.argv[1:])
