"""One SSH connection: who signs in with which key, and what channels may be opened."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Container
from contextvars import ContextVar
from typing import Any

import asyncssh
from asyncssh.constants import MSG_IGNORE

from backendai.gates.gateways.guard import Unknown
from backendai.gates.gateways.tunnel import NoTunnel
from backendai.gates.sshgate.entrances import Entrance
from backendai.gates.sshgate.link import GuestRefused, Link, why
from backendai.gates.sshgate.shell import ShellChannel, ShellSession
from backendai.gates.sshgate.visit import MOST_CHANNELS, ForwardUse, ShellGuard, Visit

logger = logging.getLogger(__name__)

MOST_OFFERS = 44  # of keys: 20, of which each may be asked for and then signed with, and a few bad signatures
_LONGEST_NAME = 255
peer: ContextVar[str] = ContextVar("peer", default="")  # the client's address, as the proxy in front says it
Admit = Callable[[Entrance], bool]


class GateServer(asyncssh.SSHServer):
    """``admit`` says whether one more connection of this person may be; ``leave`` is told when it has ended. ``refuse``
    is told the address and the number of offered keys when somebody tried to sign in and did not."""

    def __init__(
        self, guard: ShellGuard, admit: Admit, leave: Callable[[Entrance], None], refuse: Callable[[str, int], None]
    ) -> None:
        self._guard, self._admit, self._leave, self._refuse = guard, admit, leave, refuse
        self._address = peer.get()
        self._offers, self._has_tried = 0, False
        self._entrance: Entrance | None = None
        self._brought = ("", "")  # the key's fingerprint and the name that led to it
        self._visit: Visit | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Keep the connection."""
        self._connection = conn
        conn.send_packet = _without_empty_packets(conn.send_packet)  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the counter."""
        if not self._closed.done():
            self._closed.set_result(None)
        if self._visit is not None:
            self._leave(self._visit.entrance)
        elif self._has_tried:
            self._refuse(self._address, self._offers)

    def begin_auth(self, username: str) -> bool:
        """Nobody comes in without a key."""
        self._has_tried = True
        return True

    def public_key_auth_supported(self) -> bool:
        """Keys are the only way."""
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Return whether the key is somebody's. The signature is checked by the library afterwards."""
        self._offers += 1
        if self._offers > MOST_OFFERS or len(username) > _LONGEST_NAME:
            self._connection.disconnect(asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys were offered.")
            return False
        brought = (key.get_fingerprint(), username)
        try:
            found = await self._guard.entrance(*brought)
        except Unknown:
            found = None
        # From here to ``auth_completed`` nothing is waited for: another offer cannot come between key and signature.
        self._entrance, self._brought = found, brought
        return found is not None

    async def _look(self) -> Entrance | None:
        return await self._guard.entrance(*self._brought)

    def auth_completed(self) -> None:
        """Begin the visit; a connection that may not go on is cut at once."""
        assert self._entrance is not None
        if not self._admit(self._entrance):
            self._connection.disconnect(asyncssh.DISC_TOO_MANY_CONNECTIONS, "You have too many connections open.")
            return
        self._visit = Visit(self._guard, self._entrance, self._look, self._address)
        self._watching = asyncio.get_running_loop().create_task(self._watch(self._visit))

    async def _watch(self, visit: Visit) -> None:
        try:
            await visit.watch(self._closed)
        except asyncio.CancelledError:
            logger.info("a connection is cut: its key, its account or its session is gone")
        finally:
            self._connection.abort()

    def session_requested(self) -> tuple[ShellChannel, ShellSession]:
        """Open a channel for a program. Raises ChannelOpenError."""
        visit = self._with_room()
        visit.channels += 1  # at once: many may be asked for before the first is open
        connection = self._connection
        channel = ShellChannel(
            connection, asyncio.get_running_loop(), True, False, False, 0, 0, None, "strict",
            connection._window, connection._max_pktsize,
        )  # fmt: skip
        return channel, ShellSession(visit)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        """Open a channel to a port of the kernel, or of another one of its session. Raises ChannelOpenError."""
        return self._counted(lambda visit: self._forward(visit, dest_host[:_LONGEST_NAME], dest_port))

    def unix_connection_requested(self, dest_path: str) -> Awaitable[asyncssh.SSHUNIXSession[bytes]]:
        """Open a channel to a socket in the kernel. Raises ChannelOpenError."""
        self._with_room()
        if not dest_path.startswith("/") or len(dest_path.encode()) > LONGEST_PATH:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "Name the whole path of a socket.")
        return self._counted(lambda visit: self._dial(visit, {"op": "dial", "socket": dest_path, "port": 0}))

    def _counted(self, opening: Callable[[Visit], Awaitable[asyncssh.SSHTCPSession[bytes]]]) -> Any:
        """Return the opening of a channel, which counts from now on; one that fails does not any more."""
        visit = self._with_room()
        visit.channels += 1

        async def open_it() -> asyncssh.SSHTCPSession[bytes]:
            try:
                return await opening(visit)
            except BaseException:
                visit.channels -= 1
                raise

        return open_it()

    async def _forward(self, visit: Visit, host: str, port: int) -> asyncssh.SSHTCPSession[bytes]:
        try:
            target = await visit.target()
        except Exception as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "The session is not running.") from error
        where = inside(host, target.neighbours)
        if where is None or not 0 < port < 65536:
            text = "Only ports of the session itself can be reached: use localhost, or the name of one of its kernels."
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, text)
        return await self._dial(visit, {"op": "dial", "port": port}, where)

    async def _dial(
        self, visit: Visit, question: dict[str, object], hostname: str = ""
    ) -> asyncssh.SSHTCPSession[bytes]:
        try:
            return Forward(visit, await visit.open(question, hostname))
        except (GuestRefused, NoTunnel) as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, why(error)) from None

    def _with_room(self) -> Visit:
        if self._visit is None or self._visit.channels >= MOST_CHANNELS:
            text = f"A connection has {MOST_CHANNELS} channels at most."
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, text)
        return self._visit


def _without_empty_packets(send: Callable[..., None]) -> Callable[..., None]:
    """Return how packets are sent without the empty one that the library sends before each of them: it protects CBC
    ciphers, which the gate does not offer, and costs as much as the packet itself."""

    def send_packet(kind: int, *parts: bytes, **more: Any) -> None:
        if kind != MSG_IGNORE:
            send(kind, *parts, **more)

    return send_packet


def quiet() -> None:
    """Keep the library from writing commands and file names into logs."""
    for name in ("asyncssh", "asyncssh.sftp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.suppress(AttributeError):
        asyncssh.set_log_level(logging.CRITICAL)


_HERE = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
LONGEST_PATH = 107


class Forward(asyncssh.SSHTCPSession[bytes]):
    """Relays one channel to one port; also to one socket of a path."""

    def __init__(self, visit: Visit, link: Link) -> None:
        self._visit, self._link, self._use = visit, link, ForwardUse()
        self._is_done = self._has_ended = self._has_client_ended = False

    def connection_made(self, chan: Any) -> None:
        """Keep the channel, which is counted since it was asked for."""
        self._channel = chan

    def session_started(self) -> None:
        """Let the answers through."""
        self._link.join(self)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Pass on what the client sends."""
        self._visit.used(received=len(data), counts=self._use.counts(len(data)))
        self._link.write(data)

    def eof_received(self) -> bool:
        """Pass on the end; the other direction stays open."""
        self._has_client_ended = True
        self._link.end_writing()
        return True

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._link.pause()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self._link.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection in the kernel; what both sides have ended is still sent."""
        self._visit.channels -= 1
        self._is_done = True
        if self._has_ended and self._has_client_ended:
            self._link.finish()
        else:
            self._link.close(at_once=True)

    def wait(self) -> None:
        """Take nothing from the client for now."""
        if not self._is_done:
            self._channel.pause_reading()

    def go_on(self) -> None:
        """Take from the client again."""
        if not self._is_done:
            self._channel.resume_reading()

    def hear(self, data: bytes) -> None:
        """Pass on what comes from the port."""
        if not self._is_done:
            self._visit.used(sent=len(data), counts=False)
            with contextlib.suppress(OSError):
                self._channel.write(data)

    def hear_end(self) -> None:
        """The port says no more; a second time: it is gone."""
        if self._has_ended:
            self._channel.close()
        elif not self._is_done:
            self._has_ended = True
            with contextlib.suppress(OSError):
                self._channel.write_eof()


def inside(host: str, neighbours: Container[str]) -> str | None:
    """Return whose ports are asked for: empty for those of the kernel itself, or the name of a kernel of its session,
    whose own guest agent then dials. None for every other host: the network of the agents is not open to people."""
    name = host.strip("[]").rstrip(".").lower()
    if name in _HERE or name == "":
        return ""
    if name in neighbours:
        return name
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None) or address
    return "" if mapped.is_loopback or mapped.is_unspecified else None
