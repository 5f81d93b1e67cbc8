"""The sender that is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from bai.sdk.call import Call, Page
from bai.sdk.client import Sender, answer_of

T = TypeVar("T")


class AsyncClient(Sender):
    """Sends calls. Use as an asynchronous context manager, or ``close`` it."""

    def __init__(self, url: str, token: str = "", profile: str = "", **options: Any) -> None:
        super().__init__(url, token, profile, **options)
        self._http = self._httpx.AsyncClient(**self._options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Return the answer to a call, which is sent again where that is safe. Raises Problem and Unreachable."""
        call = call.prepared()
        course = self._course(call)
        outcome: Any = None  # with which a generator begins
        while True:
            try:
                wait = course.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await asyncio.sleep(wait)
            try:
                outcome = answer_of(await self._http.request(**self._arguments(call)))
            except self._httpx.TransportError as error:
                outcome = error

    async def each(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        """Yield what is on this page and the following ones."""
        page = await self.send(call)
        while True:
            for one in page.results:
                yield one
            if not page.next:
                return
            page = await self.send(call.following(page))
