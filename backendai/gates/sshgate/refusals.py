"""Clients that tried to sign in and did not, summed by address: brute force leaves entries, and not thousands."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from backendai.domain.activity.services import audit_each
from backendai.gates.gateways.guard import Unknown

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
