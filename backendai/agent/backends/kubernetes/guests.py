"""Guest agents in pods. As pod and agent share no folder, one command in the pod forwards its guest's connections.

On this side, the connections end at a socket in a folder of this machine, as with other backends. Each is opened when
the command reports that the guest has opened one; nothing else comes from the pod.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from backendai.agent.backends.base import SH, TOOLS, BackendError, KernelGone
from backendai.agent.backends.guest_host import PROGRAM, GuestPlace, program
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.backends.kubernetes.api.names import pod_name
from backendai.agent.backends.kubernetes.api.streams import PodCommand, run_command
from backendai.agent.backends.shared.home import WAIT
from backendai.agent.backends.shared.kit import IS_NEW_ENOUGH
from backendai.agent.backends.shared.trees import ids_in, remove_tree
from backendai.agent.guest.link.carrying import Carrier
from backendai.agent.guest.link.sockets import SOCKET, short_address
from backendai.base.paths.mount_targets import HOME as WORKDIR

logger = logging.getLogger(__name__)

_INSIDE = "/tmp/.backendai-guest"  # noqa: S108 - of the container
_FIRST_REST, _LONGEST_REST = 0.5, 30.0
_LAST_SECONDS = 0.5  # for closing connections
_BRING_SECONDS = 20.0
_BRING = f'{TOOLS}; umask 077; mkdir -p "$0" && head -c "$1" >"$0/.new" && mv "$0/.new" "$0/$2"'
_NO_PYTHON = 127
# Arguments: the script that waits for the bootstrap, the home, the check of Python's version, the program.
_CARRY = f"""
/bin/sh -c "$1" wait "$2" true >/dev/null 2>&1 </dev/null
for python in python3 python; do
  command -v "$python" >/dev/null 2>&1 && "$python" -I -S -c "$3" || continue
  exec "$python" -I -S "$4" carry {_INSIDE} 2>/dev/null
done
exit {_NO_PYTHON}
""".strip()
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PodGuests(GuestPlace):
    """The guests of one agent's pods. ``find`` raises KernelGone for a kernel that does not run. ``root``: the folder
    of this side's sockets."""

    def __init__(self, api: Api, find: Callable[[UUID], object], root: Path) -> None:
        self._api, self._find, self._root = api, find, root
        self._ways: dict[UUID, _GuestConnection] = {}
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def folder(self, kernel_id: UUID) -> Path:
        """Return the folder of a kernel's socket; reconnects to a guest that was started earlier."""
        self._find(kernel_id)
        folder = self._root / str(kernel_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.was_launched(kernel_id):
            self._open(kernel_id, folder)
        return folder

    def was_launched(self, kernel_id: UUID) -> bool:
        return (self._root / str(kernel_id) / PROGRAM).exists()

    def launch(self, kernel_id: UUID) -> None:
        """Start the guest in the pod, by the command that forwards its connections."""
        self._find(kernel_id)
        self._open(kernel_id, self._root / str(kernel_id)).start_program()

    def remove(self, kernel_id: UUID) -> None:
        """Close the connection to a kernel's guest, and delete its folder."""
        with self._guard:
            way = self._ways.pop(kernel_id, None)
        if way is not None:
            way.close()
        remove_tree(self._root / str(kernel_id))

    def sweep(self, live: set[UUID]) -> None:
        """Remove the guests of kernels that are not in ``live``."""
        for kernel_id in ids_in(self._root) - live:
            self.remove(kernel_id)

    def close(self) -> None:
        """Close every connection; the guests and their programs continue."""
        with self._guard:
            ways, self._ways = list(self._ways.values()), {}
            loop, self._loop = self._loop, None
        for way in ways:
            way.close()
        if loop is not None:
            loop.call_soon_threadsafe(loop.call_later, _LAST_SECONDS, loop.stop)

    def _open(self, kernel_id: UUID, folder: Path) -> _GuestConnection:
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="guests", daemon=True).start()
            way = self._ways.get(kernel_id)
            if way is None or way.is_over:
                way = self._ways[kernel_id] = _GuestConnection(self._api, pod_name(kernel_id), folder, self._loop)
        return way


class _GuestConnection:
    """The connection to one pod's guest, reopened whenever it breaks."""

    def __init__(self, api: Api, pod: str, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._api, self._pod, self._folder, self._loop = api, pod, folder, loop
        self._carrier: Carrier | None = None
        self._running = asyncio.run_coroutine_threadsafe(self._run(), loop)

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended for good."""
        return self._running.done()

    def start_program(self) -> None:
        """Start the guest again if the connection is open; opening it starts one."""
        if (carrier := self._carrier) is not None:
            asyncio.run_coroutine_threadsafe(carrier.start_program(), self._loop)

    def close(self) -> None:
        self._running.cancel()

    async def _run(self) -> None:
        rest = _FIRST_REST
        while True:
            try:
                began = self._loop.time()
                if (code := await self._carry()) is not None:
                    if code != 0:
                        logger.info("%s has no guest: exit code %d", self._pod, code)
                    return
                rest = _FIRST_REST if self._loop.time() - began > _LONGEST_REST else rest
            except KernelGone:
                return
            except BackendError as error:
                logger.info("%s: the way to its guest broke off: %s", self._pod, error.message)
            await asyncio.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)

    async def _carry(self) -> int | None:
        """Forward connections until the stream ends; returns the command's exit code, None if the stream broke."""
        await self._bring()
        words = [SH, "-c", _CARRY, "carry", WAIT, WORKDIR, IS_NEW_ENOUGH, f"{_INSIDE}/{PROGRAM}"]
        running = await run_command(self._api, self._pod, words, stdin=True)
        sending = asyncio.Lock()

        async def send(frame: bytes) -> None:
            async with sending:
                await running.write(frame)

        self._carrier = carrier = Carrier(send, connect=self._connect)
        try:
            while data := await running.read():
                carrier.take(data)
        except ValueError as error:
            logger.warning("%s sends what no guest does: %s", self._pod, error)
        finally:
            self._carrier = None
            carrier.close()
            await running.close()
        return running.exit_code

    async def _bring(self) -> None:
        """Copy this version of the guest's program into the pod."""
        data = program()
        words = [SH, "-c", _BRING, _INSIDE, str(len(data)), PROGRAM]
        running = await run_command(self._api, self._pod, words, stdin=True)
        try:
            async with asyncio.timeout(_BRING_SECONDS):
                await running.write(data)
                await _end_of(running)
        except TimeoutError as error:
            raise BackendError("the program of the guest does not arrive") from error
        finally:
            await running.close()

    async def _connect(self) -> Connection:
        """Connect to this side's socket."""
        with short_address(self._folder / SOCKET) as address:
            return await asyncio.open_unix_connection(address)


async def _end_of(running: PodCommand) -> None:
    while await running.read():
        pass
