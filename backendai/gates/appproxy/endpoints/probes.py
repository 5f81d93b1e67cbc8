"""Probes the replicas of this proxy, through the tunnel that requests use too."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

import aiohttp

from backendai.gates.appproxy.endpoints.replicas import Known, Pool
from backendai.gates.appproxy.headers import head_of
from backendai.gates.gateways.exchanges import Question, Tunnels
from backendai.gates.gateways.tunnel import NoTunnel, open_tunnel

logger = logging.getLogger(__name__)

EVERY_SECONDS, FIRST_SECONDS, HELD_SECONDS, PATIENCE_SECONDS = 5.0, 1.0, 0.2, 3.0
TICK_SECONDS = 0.5
_MOST_AT_ONCE = 64


class Prober:
    """Probes each replica every five seconds, and one second after a failed probe. So a replica that hangs is detected
    within twenty seconds.
    """

    def __init__(self, tunnels: Tunnels, pools: Callable[[], Iterable[Pool]]) -> None:
        self._tunnels, self._pools = tunnels, pools
        self._due: dict[str, float] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_MOST_AT_ONCE)

    def close(self) -> None:
        """Cancel the running probes."""
        for task in self._running:
            task.cancel()

    async def look(self) -> None:
        """Start the probes that are due, as tasks."""
        now, listed = time.monotonic(), set()
        for pool in self._pools():
            for pk, known in pool.known.items():
                if not known.is_listed:
                    continue
                listed.add(pk)
                if now >= self._due.get(pk, 0.0):
                    self._due[pk] = now + EVERY_SECONDS + PATIENCE_SECONDS  # changed when this probe ends
                    task = asyncio.create_task(self._probe(pool, known))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
        self._due = {pk: at for pk, at in self._due.items() if pk in listed}

    async def _probe(self, pool: Pool, known: Known) -> None:
        async with self._gate:
            message = await self._ask(known)
        was_answering = known.has_answered and not known.missed
        if message:
            known.note_missed_probe(message, time.monotonic())
        else:
            known.note_probe(time.monotonic())
            if not was_answering:
                pool.serve_waiting()
        soon = HELD_SECONDS if pool.counters.held.count else FIRST_SECONDS
        self._due[known.entry.id] = time.monotonic() + (soon if message or not known.has_answered else EVERY_SECONDS)

    async def _ask(self, known: Known) -> str:
        """Probe a replica and return the error message; empty for success. Waits three seconds at most."""
        path, target = known.entry.probe_path, known.target("probe")
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if not path:
                    transport, _ = await open_tunnel(target)
                    transport.abort()
                    return ""
                head = head_of(f"GET {path} HTTP/1.1", {"Host": "localhost", "Connection": "close"})
                exchange = await self._tunnels.ask(target, Question("GET", head), apart=True, may_repeat=lambda: False)
                exchange.close()
                status = exchange.answer.status
                advice = " Use another health path, or none: then a connection is enough." * (status == 404)
                return "" if status < 400 else f"It answers {status} to {path}.{advice}"
        except TimeoutError:
            return f"It did not answer {path or 'a connection'} within {PATIENCE_SECONDS:g} s."
        except NoTunnel as error:
            return error.message
        except (aiohttp.ClientError, OSError) as error:
            return f"It broke off the answer to {path}: {type(error).__name__}."
        except Exception as error:
            logger.exception("replica %s could not be probed", known.entry.id)
            return f"It could not be probed: {type(error).__name__}."
