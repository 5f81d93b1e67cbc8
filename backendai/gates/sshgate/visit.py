"""One connection of one person: what it may open, how much it has open, and that it is cut when it may no more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from backendai.base.core.durations import describe_duration
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.gateways.guard import Guard, Unknown
from backendai.gates.gateways.targets import Denied
from backendai.gates.sshgate.counts import received_bytes, sent_bytes
from backendai.gates.sshgate.entrances import Entrance, ShellTarget, entrance_for, note, open_at, to_folders
from backendai.gates.sshgate.link import GuestRefused, Link, open_link

logger = logging.getLogger(__name__)

MOST_CHANNELS = 64
_FOLDERS_SECONDS, _LOOK_SECONDS = 20.0, 0.3
_RETRY_SECONDS = 2.0  # without a database
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
    """An authenticated connection. While its entrance leads to no kernel, each channel lets ``look`` sign in again: the
    session may run by now."""

    def __init__(
        self, guard: ShellGuard, entrance: Entrance, look: Callable[[], Awaitable[Entrance | None]], address: str
    ) -> None:
        self._guard, self.entrance, self._look, self._address = guard, entrance, look, address
        self.channels = 0
        self._first: asyncio.Future[ShellTarget] = asyncio.get_running_loop().create_future()
        self._received = self._sent = 0
        self._finding: asyncio.Task[Entrance] | None = None

    async def target(self) -> ShellTarget:
        """Return the kernel, if it may be used now. Raises Denied, Unknown."""
        if self.entrance.kernel_id is None:
            if self._finding is None or self._finding.done():  # one search, however many channels wait for it
                self._finding = asyncio.get_running_loop().create_task(self._find())
            self.entrance = await asyncio.shield(self._finding)
        target = await self._guard.target(self.entrance)
        if not self._first.done():
            self._first.set_result(target)
        return target

    async def _find(self) -> Entrance:
        found = await self._look()
        if found is None or (found.key_id, found.user_id) != (self.entrance.key_id, self.entrance.user_id):
            raise Denied("signed-out", "This SSH key does not open your sessions any more.")
        return await self._guard.folders(found) if found.wants_folders else found

    async def open(self, question: Mapping[str, Any], hostname: str = "") -> Link:
        """Return a connection to the guest, or to that of the session's kernel with this name. Raises GuestRefused with
        what the person is told, NoTunnel."""
        try:
            target = await self.target()
            if hostname not in ("", target.hostname):
                kernel_id, generation = target.neighbours[hostname]
                beside = replace(self.entrance, kernel_id=kernel_id, generation=generation)
                target = await self._guard.target(beside)
            if not target.has_shell:
                question = only_files(question)
            elif "pty" in question:
                question = {**question, "greeting": greeting(target, timezone.now())}
            return await open_link(target, question)
        except Denied as error:
            raise GuestRefused(error.code, str(error.message)) from None
        except Unknown:
            raise GuestRefused("try-again", "The portal cannot be asked now: try again.") from None

    async def watch(self, closed: asyncio.Future[None]) -> None:
        """Return when the connection is closed, or may not go on; also raises CancelledError for that. Connection and
        end are audited."""
        target = await self._first_target(closed)
        if target is None:
            return
        since = time.monotonic()
        try:
            with self._guard.watching(self.entrance):
                await self._note(target, "ssh.connect", kernel=target.hostname)
                while not target.has_shell and not closed.done():  # to be connected is to use it
                    meter.touch(target.session_id)
                    await asyncio.wait([closed], timeout=_TOUCH_SECONDS)
                await closed
        finally:
            seconds = round(time.monotonic() - since)
            told = {"seconds": seconds, "received": self._received, "sent": self._sent}
            await asyncio.shield(self._note(target, "ssh.disconnect", kernel=target.hostname, **told))

    async def _first_target(self, closed: asyncio.Future[None]) -> ShellTarget | None:
        """Return the kernel as soon as it may be used: until then nothing is open. None: the connection is closed, or
        its kernel may not be used any more."""
        while not closed.done():
            pause = None
            try:
                if self.entrance.kernel_id is not None or self.entrance.wants_folders:
                    return await self.target()
            except Unknown:
                pause = _RETRY_SECONDS
            except Denied:
                if self.entrance.kernel_id is not None:
                    return None
            waiting: list[asyncio.Future[Any]] = [closed, self._first]
            await asyncio.wait(waiting, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if self._first.done():
                return self._first.result()
        return None

    def used(self, *, received: int = 0, sent: int = 0, counts: bool = True) -> None:
        """Count bytes; ``counts``: they are use of the session."""
        self._received += received
        self._sent += sent
        received_bytes(received)
        sent_bytes(sent)
        if counts and self._first.done():
            meter.touch(self._first.result().session_id)

    async def _note(self, target: ShellTarget, action: str, **more: object) -> None:
        with contextlib.suppress(Unknown):
            await self._guard.ask(lambda: note(self.entrance, target.session_id, action, self._address, **more))


def greeting(target: ShellTarget, now: datetime) -> str:
    """Return the first line of a shell: where it is, whose it is, and when it ends."""
    where = f"Session {target.session_name}, kernel {target.hostname}, of {target.owner}."
    if target.ends_at is None or target.ends_at <= now:
        return where
    return f"{where} It ends in {describe_duration(target.ends_at - now)}."


class ForwardUse:
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


_REFUSED = "This session is for files alone: use sftp, scp or rsync."
_FOREIGN = ("--daemon", "--config", "--rsh", "--rsync-path", "--log-file", "--dparam")  # of rsync


def only_files(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the question as one that no shell reads. Raises GuestRefused for what is more than copying files."""
    if question["op"] == "sftp":
        return dict(question)
    command = question.get("command")
    if question["op"] != "exec" or not isinstance(command, str) or "pty" in question:
        raise GuestRefused("files-only", _REFUSED)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise GuestRefused("files-only", _REFUSED) from error
    if not (_is_scp(words) or _is_rsync(words)):
        raise GuestRefused("files-only", _REFUSED)
    return {"op": "transfer", "argv": words, "env": question.get("env", {})}


def _is_scp(words: Sequence[str]) -> bool:
    """Return whether these words are the other end of a copy: known options, one of them its direction, and a path."""
    *options, path = [word for word in words[1:] if word != "--"] or [""]
    is_known = bool({"-t", "-f"} & set(options)) and set(options) <= {"-r", "-p", "-v", "-d", "-q", "-t", "-f"}
    return words[:1] == ["scp"] and is_known and not path.startswith("-")


def _is_rsync(words: Sequence[str]) -> bool:
    return words[:2] == ["rsync", "--server"] and not any(word.startswith(_FOREIGN) for word in words[2:])
