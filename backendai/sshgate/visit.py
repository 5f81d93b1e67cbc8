"""One connection of one person: what it may open, how much it has open, and that it is cut when it may no more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from backendai.compute.services.traffic import meter
from backendai.gateways.guard import Guard, Unknown
from backendai.gateways.targets import Denied
from backendai.sshgate.entrances import Entrance, ShellTarget, entrance_for, note, open_at, to_folders
from backendai.sshgate.files_only import only_files
from backendai.sshgate.link import GuestRefused, Link, open_link

logger = logging.getLogger(__name__)

MOST_CHANNELS = 64
_FOLDERS_SECONDS, _LOOK_SECONDS = 20.0, 0.3
_TOUCH_SECONDS = 60.0
_WORTH_BYTES, _WORTH_SECONDS = 4096, 60.0  # of a forward: editors send a few bytes now and then


class ShellGuard(Guard[Entrance, ShellTarget]):
    """Looks after everything that is open by SSH."""

    def __init__(self) -> None:
        super().__init__(open_at)

    async def entrance(self, fingerprint: str, name: str) -> Entrance | None:
        """Return what a key opens under a name. Raises Unknown."""
        return await self.ask(lambda: entrance_for(fingerprint, name, timezone.now()))

    async def folders(self, entrance: Entrance) -> Entrance:
        """Return the way to the folders of an entrance, once their session runs; else with an apology."""
        until = time.monotonic() + _FOLDERS_SECONDS
        while True:
            with contextlib.suppress(Unknown):
                found = await self.ask(lambda: to_folders(entrance))
                if not found.wants_folders or time.monotonic() > until:
                    return found
            if time.monotonic() > until:
                raise Unknown
            await asyncio.sleep(_LOOK_SECONDS)


class Visit:
    """An authenticated connection. ``cut`` ends it at once."""

    def __init__(self, guard: ShellGuard, entrance: Entrance, address: str) -> None:
        self._guard, self.entrance, self._address = guard, entrance, address
        self.channels = 0
        self._target: ShellTarget | None = None
        self._received = self._sent = 0
        self._finding: asyncio.Task[Entrance] | None = None

    async def target(self) -> ShellTarget:
        """Return the kernel, if it may be used now. Raises Denied, Unknown."""
        if self.entrance.wants_folders:
            if self._finding is None:
                self._finding = asyncio.get_running_loop().create_task(self._guard.folders(self.entrance))
            self.entrance = await asyncio.shield(self._finding)
        self._target = await self._guard.target(self.entrance)
        return self._target

    async def open(self, question: Mapping[str, Any]) -> Link:
        """Return a connection to the guest. Raises GuestRefused with what the person is told, NoTunnel."""
        try:
            target = await self.target()
            return await open_link(target, question if target.has_shell else only_files(question))
        except Denied as error:
            raise GuestRefused(error.code, str(error.message)) from None
        except Unknown:
            raise GuestRefused("try-again", "The portal cannot be asked now: try again.") from None

    async def watch(self, closed: asyncio.Future[None]) -> None:
        """Return when the connection is closed; raises CancelledError as soon as it may not go on. Connection and end
        are audited."""
        if self.entrance.kernel_id is None and not self.entrance.wants_folders:
            await closed
            return
        try:
            target = await self.target()
        except (Denied, Unknown):
            await closed
            return
        since = time.monotonic()
        await self._note(target, "ssh.connect", kernel=target.hostname)
        try:
            with self._guard.watching(self.entrance):
                while not target.has_shell and not closed.done():  # to be connected is to use it
                    meter.touch(target.session_id)
                    await asyncio.wait([closed], timeout=_TOUCH_SECONDS)
                await closed
        finally:
            seconds = round(time.monotonic() - since)
            told = {"seconds": seconds, "received": self._received, "sent": self._sent}
            await asyncio.shield(self._note(target, "ssh.disconnect", kernel=target.hostname, **told))

    def used(self, *, received: int = 0, sent: int = 0, counts: bool = True) -> None:
        """Count bytes; ``counts``: they are use of the session."""
        self._received += received
        self._sent += sent
        if counts and self._target is not None:
            meter.touch(self._target.session_id)

    async def _note(self, target: ShellTarget, action: str, **more: object) -> None:
        with contextlib.suppress(Unknown):
            await self._guard.ask(lambda: note(self.entrance, target.session_id, action, self._address, **more))


class Use:
    """Whether a forward is used: more came from its client within a minute than an idle editor sends."""

    def __init__(self) -> None:
        self._bytes, self._since = 0, time.monotonic()

    def counts(self, size: int) -> bool:
        """Return whether these bytes make it used."""
        now = time.monotonic()
        if now - self._since > _WORTH_SECONDS:
            self._bytes, self._since = 0, now
        self._bytes += size
        return self._bytes > _WORTH_BYTES
