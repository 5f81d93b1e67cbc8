"""The base of all websockets: opens or refuses the socket, and closes it when its user loses access."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Hashable, Mapping
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, parse_cookie
from django.utils import translation

from backendai.base.core.messages import Message
from backendai.base.db.database_faults import is_away, is_busy
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.scopes import Scope
from backendai.portal.realtime.credentials import credential_of, credentials_of, headers_of
from backendai.portal.realtime.places import Places
from backendai.portal.realtime.rounds import rounds
from backendai.portal.realtime.targets import REFUSED, ConnectionForbidden, Refusal

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 10.0
_LONGEST_REASON = 123  # bytes, RFC 6455 5.5


class GuardedConsumer(AsyncWebsocketConsumer):
    """A websocket whose access is checked while it is open.

    Subclasses define ``open``, ``may_stay``, ``hang_up`` and the scope that a bearer token must have.
    """

    token_scope = Scope.READ

    async def open(self) -> None:
        """Accept the socket and start to serve it. Raises Refusal if that is not possible."""
        raise NotImplementedError

    def may_stay(self) -> bool:
        """Return whether the user of the socket may still use it. Runs in a thread and may query the database."""
        raise NotImplementedError

    def question(self) -> Hashable:
        """Return the key of the check ``may_stay``: sockets with the same key share a result."""
        return self

    async def hang_up(self) -> None:
        """Release everything that ``open`` took. Called at least once, also after errors."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one socket from its handshake to its end."""
        self.credentials = credentials_of(scope, self.token_scope)
        self._watcher: asyncio.Task[None] | None = None
        self.places = Places()
        try:
            await self.serve(scope, receive, send)
        finally:
            self.places.leave()
            if self._watcher:
                self._watcher.cancel()
            await self.hang_up()

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the socket; the reason is sent in the browser's language, cut to the protocol's 123 bytes."""
        with translation.override(_language_of(self.scope)):
            words = in_words(reason) if reason else None
        await super().close(code, words and words.encode()[:_LONGEST_REASON].decode(errors="ignore"))

    async def serve(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handle the socket's events until it has ended."""
        await super().__call__(scope, receive, send)

    async def connect(self) -> None:
        """Open the socket, or refuse it.

        Strangers are refused at the handshake, as the server would read and decompress their frames. Other refusals
        accept first, because browsers do not see the code of a refused handshake.
        """
        try:
            await self.open()
        except ConnectionForbidden as refusal:
            await self.close(refusal.code, refusal.reason)
        except Refusal as refusal:
            await self.accept()
            await self.close(refusal.code, refusal.reason)
        except OperationalError as error:
            if not (is_away(error) or is_busy(error)):
                raise
            # A refused handshake: nobody is known yet, and the page asks by HTTP whether to try again.
            logger.warning("no websocket for a browser: the database does not answer")
            await self.close()
        else:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Check access periodically and after each change of the credentials; close the socket when access is lost."""
        with rounds().watching(credential_of(self.credentials)) as changed:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RECHECK_SECONDS):
                        await changed.wait()
                changed.clear()
                try:
                    stays = await rounds().shared(self.question(), self.may_stay)
                except DatabaseError as error:  # unknown is not refused
                    logger.warning("websocket not rechecked: %s", error)
                    continue
                if not stays:
                    break
        await self.hang_up()
        with contextlib.suppress(OSError, RuntimeError):  # the browser has just left
            await self.close(REFUSED, Message("You are signed out, or may no longer see this."))


def _language_of(scope: Mapping[str, Any]) -> str:
    """Return the language that the browser's cookie or header asks for."""
    headers = headers_of(scope)
    request = HttpRequest()
    request.COOKIES.update(parse_cookie(headers.get("cookie", "")))
    request.META["HTTP_ACCEPT_LANGUAGE"] = headers.get("accept-language", "")
    return translation.get_language_from_request(request)
