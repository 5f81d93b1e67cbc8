"""An agent's access to the broker: an account of its own. The agent generates the password and sends only its hash."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.agent.settings.credentials import write_private
from backendai.base.wire.broker.messages import BrokerDown, BrokerUp
from backendai.base.wire.broker.queues import account_in, with_account, with_account_of

logger = logging.getLogger(__name__)

_FILE = "broker.json"
_ASK_AGAIN_SECONDS = 3.0
_ASK_REFUSED_AGAIN_SECONDS = 300.0


class BrokerProxy(Protocol):
    """The portal's method that ``BrokerAccess`` calls."""

    def open_broker(self, up: BrokerUp) -> BrokerDown:
        """Return the broker's address and the account's name. Raises PortalUnreachable and PortalRefused."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The content of the file. ``token``: hash of the agent's token at that time; the file of another token is
    ignored."""

    token: str
    password: str
    url: str = ""
    username: str = ""


class BrokerAccess:
    """Determines the broker's address. Use it from one thread at a time.

    ``told``: the address in this agent's own environment. It takes precedence over the portal's, and if it contains an
    account, the portal is not asked.
    """

    def __init__(
        self,
        data: Path,
        portal: BrokerProxy,
        *,
        token: str,
        told: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._portal, self._told, self._clock = data / _FILE, portal, told, clock
        self._token = hashlib.sha256(token.encode()).hexdigest()
        kept = self._load()
        self._answered = kept is not None
        self._kept = kept or _Kept(self._token, secrets.token_urlsafe(32))
        self._asked_at, self._patience = float("-inf"), _ASK_AGAIN_SECONDS

    def first(self) -> str:
        """Return the address for the first connection; "" if agents have no broker."""
        return self._told if account_in(self._told) else self._ask()

    def again(self) -> str:
        """Return the address for another connection. Asks the portal again, which also recreates an account that the
        broker has lost: at most once in 3 s, or in 300 s after a refusal."""
        if account_in(self._told):
            return self._told
        if self._clock() - self._asked_at < self._patience:
            return self._address()
        return self._ask()

    def _ask(self) -> str:
        self._asked_at, self._patience = self._clock(), _ASK_AGAIN_SECONDS
        digest = hashlib.sha256(self._kept.password.encode()).hexdigest()
        try:
            down = self._portal.open_broker(BrokerUp(digest=digest))
        except PortalUnreachable as error:
            logger.warning("the portal does not tell where the broker is: %s", error.message)
            return self._address()
        except PortalRefused as error:
            if error.status in (401, 403):
                self._patience = _ASK_REFUSED_AGAIN_SECONDS
            logger.warning("the portal gives no broker account: %s", error.message)
            return self._address()
        kept = _Kept(self._token, self._kept.password, down.url, down.username)
        if kept != self._kept or not self._answered:
            self._kept, self._answered = kept, True
            write_private(self._path, asdict(kept))
        return self._address()

    def _address(self) -> str:
        kept = self._kept
        if not self._answered:
            return self._told
        address = self._told or kept.url
        if kept.username:
            return with_account(address, kept.username, kept.password)
        return with_account_of(address, kept.url)

    def _load(self) -> _Kept | None:
        try:
            kept = _Kept(**json.loads(self._path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return kept if kept.token == self._token else None
