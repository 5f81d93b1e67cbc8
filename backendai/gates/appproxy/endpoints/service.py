"""Combines the parts that serve endpoints: the endpoint table, pools, probes and reports to the portal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backendai.domain.serving.endpoint_table import EndpointTable
from backendai.domain.serving.models import ServingProxy
from backendai.domain.serving.reading import HEARD
from backendai.domain.serving.services.readings import farewell, note_wake, record
from backendai.gates.appproxy.endpoints.counters import Rates
from backendai.gates.appproxy.endpoints.probes import TICK_SECONDS, Prober
from backendai.gates.appproxy.endpoints.replicas import Pool, sights_of
from backendai.gates.appproxy.endpoints.table_cache import LOOK_SECONDS, DatabaseUnavailable, TableCache
from backendai.gates.gateways.dialing import DIAL_SECONDS
from backendai.gates.gateways.exchanges import Tunnels


async def repeat(step: Callable[[], Awaitable[None]], pause: Callable[[], float], what: str) -> None:
    """Run the step in an endless loop, with ``pause()`` seconds between runs. An error does not end the loop; it is
    logged if it differs from the previous error.
    """
    before = ""
    while True:
        try:
            await step()
            before = ""
        except Exception as error:
            if repr(error) != before:
                logger.exception("%s failed, and is tried again every %g s", what, pause())
            before = repr(error)
        await asyncio.sleep(pause())


logger = logging.getLogger(__name__)

BUSY_SECONDS, REST_SECONDS, HELD_SECONDS = 2.0, 5.0, 0.2
_MOST_REMEMBERED = 4096


class Endpoints:
    """The endpoints that this proxy serves. ``name``: the proxy's name, the same after a restart. Must be created and
    closed inside a running event loop.
    """

    def __init__(self, name: str, table_path: Path) -> None:
        self.name, self.boot, self._began = name, secrets.token_hex(8), time.monotonic()
        self.pools: dict[str, Pool] = {}
        self.rates = Rates(time.monotonic)
        self.keeper = TableCache(table_path, self._take)
        self.proxies = 1
        self._told: dict[str, tuple[int, int, int]] = {}
        self._told_at = 0.0
        self._strange_hosts: set[str] = set()
        self.tunnels = Tunnels(patience=DIAL_SECONDS)
        self._prober = Prober(self.tunnels, lambda: self.pools.values())
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Read the endpoint table and start the probes and reports."""
        await self.keeper.open()
        self._tasks = [
            asyncio.create_task(repeat(step, pause, what))
            for step, pause, what in (
                (self.keeper.look, lambda: self._soon(LOOK_SECONDS), "reading the endpoint table"),
                (self._prober.look, lambda: self._soon(TICK_SECONDS), "probing replicas"),
                (self._report_if_possible, lambda: BUSY_SECONDS, "reporting what endpoints did"),
                (self._cut_unentitled, lambda: BUSY_SECONDS, "cutting requests of revoked tokens"),
            )
        ]

    async def close(self) -> None:
        """Stop the probes, send the last report and sign this proxy off. Waits two seconds at most for the database."""
        for task in self._tasks:
            task.cancel()
        self._prober.close()
        with contextlib.suppress(DatabaseUnavailable, TimeoutError):
            async with asyncio.timeout(2.0):
                await self._report(everything=True)
                await self.keeper.ask(lambda: farewell(self.name, self.boot, now=timezone.now()))
        self.tunnels.close()
        await self.keeper.close()

    @property
    def is_busy(self) -> bool:
        """Return whether any request is open or waits."""
        return any(pool.counters.is_busy for pool in self.pools.values())

    def at(self, host: str) -> Pool | None:
        """Return the pool of the endpoint with this host name; None if there is none."""
        label, _, domain = host.partition(".")
        return self.pools.get(label) if domain == settings.APPS_DOMAIN else None

    async def find(self, host: str) -> Pool | None:
        """Return the pool of an endpoint that the endpoint table does not contain yet. Reads the database once for
        each host name; an unknown name stays unknown, as names contain random ids.
        Raises DatabaseUnavailable.
        """
        if host in self._strange_hosts:
            return None
        if not await self.keeper.look_anew():
            raise DatabaseUnavailable
        if (pool := self.at(host)) is None:
            if len(self._strange_hosts) >= _MOST_REMEMBERED:
                self._strange_hosts.clear()
            self._strange_hosts.add(host)
        return pool

    async def wake(self, pool: Pool) -> None:
        """Request the first replica of an endpoint that is scaled to zero. Raises DatabaseUnavailable."""
        await self.keeper.ask(lambda: note_wake(UUID(pool.endpoint.id), now=timezone.now()))

    def _take(self, table: EndpointTable) -> None:
        for label, endpoint in table.endpoints.items():
            if label in self.pools:
                self.pools[label].update(endpoint)
            else:
                self.pools[label] = Pool(endpoint, time.monotonic, lambda: self.proxies)
        for label in [label for label in self.pools if label not in table.endpoints]:
            pool = self.pools.pop(label)
            pool.update(replace(pool.endpoint, is_stopped=True, replicas=()))  # ends the waits

    def _soon(self, seconds: float) -> float:
        """Return the pause before the next round: short while a request waits for the first replica."""
        return min(seconds, HELD_SECONDS) if any(pool.counters.held.count for pool in self.pools.values()) else seconds

    async def _report_if_possible(self) -> None:
        with contextlib.suppress(DatabaseUnavailable):
            await self._report()

    async def _cut_unentitled(self) -> None:
        for pool in self.pools.values():
            pool.cut_unentitled(time.time())

    async def _report(self, *, everything: bool = False) -> None:
        """Report changed counters and replicas to the portal, and all of them every five seconds. A failed report is
        repeated with the next.
        """
        now = time.monotonic()
        is_due = everything or now - self._told_at >= REST_SECONDS
        told, tallies = {}, []
        for pool in self.pools.values():
            counters, endpoint = pool.counters, pool.endpoint
            sign = (endpoint.version, counters.requests, counters.completions)
            if is_due or counters.is_busy or self._told.get(endpoint.id) != sign:
                tallies.append(counters.reading(UUID(endpoint.id), endpoint.version))
                told[endpoint.id] = sign
        sights = sights_of(self.pools.values())
        if not tallies and not sights and not is_due:
            return
        uptime = now - self._began
        said = [sight for _, sight in sights]

        def tell() -> int:
            record(self.name, self.boot, uptime, tallies, said, now=timezone.now())
            return ServingProxy.objects.filter(left_at=None, seen_at__gte=timezone.now() - HEARD).count()

        self.proxies = max(await self.keeper.ask(tell), 1)
        self._told |= told
        self._told_at = now if is_due else self._told_at
        for known, sight in sights:
            known.reported = sight
        for pool in self.pools.values():
            pool.forget_gone()


def usual_name(port: int) -> str:
    """Return the name of the proxy that listens on this port: host name and port."""
    return f"{socket.gethostname()[:100]}:{port}"
