"""Folders of a virtual machine: one ``virtiofsd`` each, restricted to its folder, started by the supervisor.

A read-only folder is mounted read-only on this machine, so that the guest cannot change it. Only the standard library,
as the supervisor runs alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from backendai.agent.guest.link.sockets import connect, listen

_OPTIONS = ("sandbox=namespace", "cache=auto", "no_xattr", "no_posix_lock", "no_flock", "modcaps=-mknod:-setfcap")


class Shares:
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
