"""Checks which app or folder the cookies or the header of a request open at a host."""

from __future__ import annotations

from django.utils import timezone

from backendai.domain.compute.services.apps.settings import arguments_for
from backendai.gates.appproxy.file_grants import may_ask
from backendai.gates.appproxy.targets import AnyTarget, Key, open_at, redeem_at
from backendai.gates.gateways.guard import Guard
from backendai.gates.gateways.targets import Target


class AppGuard(Guard[Key, AnyTarget]):
    """Checks and watches all access through the app proxy."""

    def __init__(self) -> None:
        super().__init__(open_at)

    async def enter(self, code: str, host: str, origin: str) -> str:
        """Exchange a code for the value of a cookie. Raises Denied, or Unknown if the database does not answer."""
        return await self.ask(lambda: redeem_at(code, host, timezone.now(), origin=origin))

    async def arguments(self, target: Target) -> tuple[str, ...]:
        """Return the arguments for the command of the target's service. Raises Unknown."""
        return await self.ask(lambda: arguments_for(target.session_id, target.service))

    async def may_ask(self, origin: str, host: str) -> bool:
        """Return whether pages of this origin may request the files of this host. Raises Unknown."""
        return await self.ask(lambda: may_ask(origin, host, timezone.now()))
