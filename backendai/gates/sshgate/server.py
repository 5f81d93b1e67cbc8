"""The SSH gate as a process: one event loop, one listener, and the limits that hold before anybody has signed in."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncssh
from django.conf import settings

from backendai.base.process.metrics_access import Scrapers, serve_apart
from backendai.domain.activity.services import audit_each
from backendai.domain.compute.services.records.traffic import meter
from backendai.gates.gateways.guard import Unknown
from backendai.gates.gateways.site_keys import host_key, private_text
from backendai.gates.sshgate import counts
from backendai.gates.sshgate.connection import GateServer, peer, quiet
from backendai.gates.sshgate.entrances import Entrance
from backendai.gates.sshgate.proxy_header import BadHeader, Proxies, read_header, unmapped
from backendai.gates.sshgate.visit import ShellGuard

logger = logging.getLogger(__name__)

MOST_UNKNOWN, MOST_PER_ADDRESS, MOST_PER_PERSON = 64, 8, 32
LOGIN_SECONDS = 20.0
_BACKLOG = 128
_LAST_SECONDS = 2.0  # for the last audit entries
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
_MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")


class _Full(Exception):
    """There are as many connections that have not signed in as there may be."""


class _Places:
    """The places of connections that have not signed in. When all are taken, a newcomer gets that of the oldest
    connection of the network that has most: a few addresses keep nobody out.
    """

    def __init__(self) -> None:
        self._taken: dict[asyncio.Task[Any], tuple[str, str]] = {}  # in the order in which they came

    @contextlib.contextmanager
    def one(self, address: str) -> Iterator[None]:
        """Hold a place for the current task, which may be cancelled for another one. Raises _Full for a client that
        holds its share already.
        """
        task, client = asyncio.current_task(), network_of(address)
        assert task is not None
        if sum(known == client for known, _ in self._taken.values()) >= MOST_PER_ADDRESS:
            raise _Full
        self._taken[task] = client, network_of(address, wide=True)
        if len(self._taken) > MOST_UNKNOWN:
            self._drop_one()
        try:
            yield
        finally:
            self._taken.pop(task, None)

    def _drop_one(self) -> None:
        shares = Counter(network for _, network in self._taken.values())
        most = max(shares.values())
        oldest = next(task for task, (_, network) in self._taken.items() if shares[network] == most)
        del self._taken[oldest]
        oldest.cancel()


class Gate:
    """Takes connections. Those that have not signed in are counted by address, the others by person."""

    def __init__(self, host_key: str) -> None:
        self._guard, self._refusals = ShellGuard(), Refusals()
        self._proxies = Proxies(settings.SSH_PROXIES)
        self._unread = 0  # connections from a proxy that has not said for whom
        self._places = _Places()
        self._people: Counter[UUID] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._key = asyncssh.import_private_key(host_key)
        self._options: asyncssh.SSHServerConnectionOptions

    async def open(self) -> None:
        """Prepare what all connections share."""
        self._options = await asyncssh.SSHServerConnectionOptions.construct(
            server_factory=self._new_server,
            server_host_keys=[self._key],
            server_version="Backend.AI",
            encryption_algs=_CIPHERS,
            mac_algs=_MACS,
            compression_algs=("none",),
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            agent_forwarding=False,
            x11_forwarding=False,
            line_editor=False,
            encoding=None,
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=30,
            keepalive_count_max=4,
        )

    async def accept(self, listener: socket.socket) -> None:
        """Take connections for ever; everything is cut when that, or the watch over what is open, fails."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._guard.watch())
                loops.create_task(self._refusals.write_for_ever(self._guard.ask))
                loops.create_task(self._accept(listener))
        finally:
            for task in self._tasks:
                task.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._refusals.write(self._guard.ask)
            self._guard.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: some will be free again
                logger.warning("no connection can be taken: %s", error)
                await asyncio.sleep(0.2)
                continue
            counts.attempts.inc()
            task = loop.create_task(self._serve(connection, str(address[0])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Serve one connection until it has signed in; from then on it lives by itself."""
        connection.setblocking(False)
        try:
            known = await self._source(connection, address) if self._proxies else address
            with self._places.one(known):
                peer.set(known)
                async with asyncio.timeout(LOGIN_SECONDS + 5):
                    await asyncssh.run_server(connection, options=self._options)
        except (OSError, asyncssh.Error, TimeoutError, BadHeader, _Full) as error:
            logger.debug("a connection came to nothing: %s", error)
            connection.close()
        except asyncio.CancelledError:  # its place went to another one, or the gate stops
            connection.close()
            raise

    async def _source(self, connection: socket.socket, proxy: str) -> str:
        """Return the client's address as the proxy says it: one client must not use up the places of all others, who
        come by the same proxy. Raises as ``read_header``, and _Full."""
        if self._unread >= MOST_UNKNOWN:
            raise _Full
        self._unread += 1
        try:
            return await read_header(connection, proxy, self._proxies)
        finally:
            self._unread -= 1

    def _new_server(self) -> GateServer:
        return GateServer(self._guard, self._admit, self._leave, self._refusals.note)

    def _admit(self, entrance: Entrance) -> bool:
        if self._people[entrance.user_id] >= MOST_PER_PERSON:
            return False
        counts.sign_ins.inc()
        counts.connections.inc()
        self._people[entrance.user_id] += 1
        return True

    def _leave(self, entrance: Entrance) -> None:
        counts.connections.dec()
        self._people[entrance.user_id] -= 1
        self._people += Counter()


def network_of(address: str, *, wide: bool = False) -> str:
    """Return by what a client is counted: its address; of IPv6 the /64, of which one client has all addresses.
    ``wide``: its site, which is a /24 or /48.
    """
    found = unmapped(address)
    is_new = isinstance(found, ipaddress.IPv6Address)
    bits = (48 if wide else 64) if is_new else (24 if wide else 32)
    return str(ipaddress.ip_network((str(found), bits), strict=False))


@asynccontextmanager
async def serving(listener: socket.socket) -> AsyncIterator[asyncio.Task[None]]:
    """Serve on a listening socket until the context ends. Gives the task that takes connections: one that ends by
    itself has failed."""
    quiet()
    listener.setblocking(False)
    gate = Gate(private_text(host_key()))
    await gate.open()
    accepting = asyncio.create_task(gate.accept(listener))
    try:
        yield accepting
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        await asyncio.to_thread(meter.close)


async def serve(host: str, port: int, *, shares_port: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. ``shares_port``: other gates listen there too. Raises what the gate failed with:
    a gate that looks at nobody any more must not stay open."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=shares_port)
    async with serving(listener) as accepting:
        logger.info("SSH is served on %s:%s", host, port)
        scrapers = Scrapers(settings.METRICS_TOKEN, tuple(settings.METRICS_NETWORKS))
        serve_apart(settings.SSH_METRICS, counts.registry, scrapers)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([accepting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if accepting.done():
            accepting.result()


SUMMED_SECONDS = 60.0
_MOST_ADDRESSES = 100
_OTHERS = "other addresses"
Ask = Callable[[Callable[[], None]], Awaitable[None]]


class Refusals:
    """Counts attempts and offered keys. Names are not kept: people type passwords in their place."""

    def __init__(self) -> None:
        self._attempts: Counter[str] = Counter()
        self._keys: Counter[str] = Counter()

    def note(self, address: str, keys: int) -> None:
        """Count one connection that ended without a sign-in after offering so many keys."""
        counts.refused.inc()
        known = address in self._attempts or len(self._attempts) < _MOST_ADDRESSES
        name = address if known else _OTHERS
        self._attempts[name] += 1
        self._keys[name] += keys

    async def write_for_ever(self, ask: Ask) -> None:
        """Write what was counted as one audit entry for each address, every ``SUMMED_SECONDS``. What the database does
        not take is written with the next."""
        while True:
            await asyncio.sleep(SUMMED_SECONDS)
            await self.write(ask)

    async def write(self, ask: Ask) -> None:
        """Write what was counted until now."""
        attempts, keys = self._attempts, self._keys
        if not attempts:
            return
        self._attempts, self._keys = Counter(), Counter()
        told = {address: {"attempts": number, "keys": keys[address]} for address, number in attempts.items()}
        addresses = {address: address for address in told if address != _OTHERS}
        try:
            await ask(lambda: audit_each(None, "ssh.refuse", "address", told, addresses=addresses))
        except Unknown:
            self._attempts += attempts
            self._keys += keys
